// steel_gemm_splitk of MLX and its accumulation kernels, from the headers of the installed package.
#pragma once

// MLX's headers need theirs included first, in this order.
// clang-format off
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/steel/gemm/gemm.h"
#include "mlx/backend/metal/kernels/steel/gemm/kernels/steel_gemm_splitk.h"
// clang-format on

#define SPLITK(LAYOUT, TRANSPOSE_A, TRANSPOSE_B, DTYPE, T, BM, BN, MN_ALIGNED, K_ALIGNED)                            \
  instantiate_kernel(                                                                                                \
      "splitk_" #LAYOUT "_" #DTYPE "_" #BM "_" #BN "_16_2_2_" #MN_ALIGNED "_" #K_ALIGNED, gemm_splitk, T, float, BM, \
      BN, 16, 2, 2, TRANSPOSE_A, TRANSPOSE_B, MN_ALIGNED, K_ALIGNED)

#define SPLITK_TILE(...)           \
  SPLITK(__VA_ARGS__, true, true)  \
  SPLITK(__VA_ARGS__, true, false) \
  SPLITK(__VA_ARGS__, false, true) \
  SPLITK(__VA_ARGS__, false, false)

#define SPLITK_ACCUMULATE(DTYPE, T)                                       \
  instantiate_kernel("splitk_accum_" #DTYPE, gemm_splitk_accum, float, T) \
      instantiate_kernel("splitk_accum_axpby_" #DTYPE, gemm_splitk_accum_axpby, float, T)
