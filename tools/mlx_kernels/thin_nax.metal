// steel_gemm_thin_nax of MLX, from the headers of the installed package.

// MLX's headers need theirs included first, in this order.
// clang-format off
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/steel/gemm/gemm_nax.h"
#include "mlx/backend/metal/kernels/steel/gemm/kernels/steel_gemm_thin_nax.h"
// clang-format on

// Named like the others: the tile of a threadgroup, a step of 64 along K, and its SIMD groups, KS of them along K.
#define THIN(LAYOUT, TRANSPOSE_B, DTYPE, T, BM, BN, UM, UN, SM, SN, KS)                                        \
  instantiate_kernel(                                                                                          \
      "thin_nax_" #LAYOUT "_" #DTYPE "_" #BM "_" #BN "_64_" #SN "_" #KS, gemm_thin_nax, T, UM, UN, SM, SN, KS, \
      TRANSPOSE_B)

#define THIN_ALL(DTYPE, T)                         \
  THIN(nn, false, DTYPE, T, 32, 32, 2, 2, 1, 1, 4) \
  THIN(nt, true, DTYPE, T, 32, 32, 2, 2, 1, 1, 4)  \
  THIN(nn, false, DTYPE, T, 32, 64, 2, 2, 1, 2, 2) \
  THIN(nt, true, DTYPE, T, 32, 64, 2, 2, 1, 2, 2)

THIN_ALL(float32, float)
THIN_ALL(float16, half)
THIN_ALL(bfloat16, bfloat)
