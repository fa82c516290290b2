// steel_gemm_splitk_nax of MLX, from the headers of the installed package.

// MLX's headers need theirs included first, in this order.
// clang-format off
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/steel/gemm/gemm_nax.h"
#include "mlx/backend/metal/kernels/steel/gemm/kernels/steel_gemm_splitk_nax.h"
// clang-format on

#define SPLITK_NAX(LAYOUT, TRANSPOSE_A, TRANSPOSE_B, DTYPE, T)                                               \
  instantiate_kernel(                                                                                        \
      "splitk_nax_" #LAYOUT "_" #DTYPE "_64_64_256_2_2", gemm_splitk_nax, T, 64, 64, 256, 2, 2, TRANSPOSE_A, \
      TRANSPOSE_B)

#define SPLITK_NAX_ALL(DTYPE, T)         \
  SPLITK_NAX(nn, false, false, DTYPE, T) \
  SPLITK_NAX(nt, false, true, DTYPE, T)  \
  SPLITK_NAX(tn, true, false, DTYPE, T)  \
  SPLITK_NAX(tt, true, true, DTYPE, T)

SPLITK_NAX_ALL(float32, float)
SPLITK_NAX_ALL(float16, half)
SPLITK_NAX_ALL(bfloat16, bfloat)
