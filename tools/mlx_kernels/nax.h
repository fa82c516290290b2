// The kernels of MLX for the matrix units of Apple10 GPUs, from the headers of the installed package.
#pragma once

// MLX's headers need theirs included first, in this order.
// clang-format off
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/steel/gemm/gemm_nax.h"
#include "mlx/backend/metal/kernels/steel/gemm/kernels/steel_gemm_fused_nax.h"
// clang-format on

#define NAX_LAYOUT(LAYOUT, TRANSPOSE_A, TRANSPOSE_B, DTYPE, T, BM, BN, BK, WM, WN)                                 \
  instantiate_kernel(                                                                                              \
      "nax_" #LAYOUT "_" #DTYPE "_" #BM "_" #BN "_" #BK "_" #WM "_" #WN, gemm, T, BM, BN, BK, WM, WN, TRANSPOSE_A, \
      TRANSPOSE_B)

#define NAX_TILE(...)                       \
  NAX_LAYOUT(nn, false, false, __VA_ARGS__) \
  NAX_LAYOUT(nt, false, true, __VA_ARGS__)  \
  NAX_LAYOUT(tn, true, false, __VA_ARGS__)  \
  NAX_LAYOUT(tt, true, true, __VA_ARGS__)

#define NAX(DTYPE, T)                     \
  NAX_TILE(DTYPE, T, 64, 64, 256, 2, 2)   \
  NAX_TILE(DTYPE, T, 128, 128, 512, 4, 4) \
  NAX_TILE(DTYPE, T, 64, 128, 256, 2, 4)  \
  NAX_TILE(DTYPE, T, 64, 128, 64, 2, 4)
