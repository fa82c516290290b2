// steel_gemm_fused of MLX, from the headers of the installed package: all layouts of every tile in its table.
#pragma once

// MLX's headers need theirs included first, in this order.
// clang-format off
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/steel/gemm/gemm.h"
#include "mlx/backend/metal/kernels/steel/gemm/kernels/steel_gemm_fused.h"
// clang-format on

#define FUSED_LAYOUT(LAYOUT, TRANSPOSE_A, TRANSPOSE_B, DTYPE, T, BM, BN, BK, WM, WN)                                 \
  instantiate_kernel(                                                                                                \
      "fused_" #LAYOUT "_" #DTYPE "_" #BM "_" #BN "_" #BK "_" #WM "_" #WN, gemm, T, BM, BN, BK, WM, WN, TRANSPOSE_A, \
      TRANSPOSE_B)

#define FUSED_TILE(...)                       \
  FUSED_LAYOUT(nn, false, false, __VA_ARGS__) \
  FUSED_LAYOUT(nt, false, true, __VA_ARGS__)  \
  FUSED_LAYOUT(tn, true, false, __VA_ARGS__)  \
  FUSED_LAYOUT(tt, true, true, __VA_ARGS__)

#define FUSED(DTYPE, T)                  \
  FUSED_TILE(DTYPE, T, 64, 64, 16, 2, 2) \
  FUSED_TILE(DTYPE, T, 64, 64, 16, 1, 2) \
  FUSED_TILE(DTYPE, T, 64, 32, 32, 2, 2) \
  FUSED_TILE(DTYPE, T, 32, 64, 16, 1, 2) \
  FUSED_TILE(DTYPE, T, 32, 32, 16, 2, 2)
