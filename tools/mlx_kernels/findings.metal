// Parts of MLX that the checks find fault with, and that no kernel of its own tables reaches as used here.

// MLX's headers need theirs included first, in this order.
// clang-format off
#include "tools/mlx_kernels/nax.h"
#include "mlx/backend/metal/kernels/steel/gemm/gemm.h"
// clang-format on

// SIMD groups of 16 columns.
NAX_LAYOUT(nn, false, false, float16, half, 64, 32, 256, 2, 2)

// GEMMKernel::run with a tail along K.
[[kernel]] void gemm_kernel_run(
    const device float* A [[buffer(0)]],
    const device float* B [[buffer(1)]],
    device float* D [[buffer(3)]],
    const constant GEMMParams* params [[buffer(4)]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint3 tile [[threadgroup_position_in_grid]],
    uint3 thread_position [[thread_position_in_threadgroup]]) {
  using Gemm = GEMMKernel<float, float, 32, 32, 16, 2, 2, false, false, true, false>;
  threadgroup float As[Gemm::tgp_mem_size_a];
  threadgroup float Bs[Gemm::tgp_mem_size_b];
  Gemm::run(A, B, D, params, As, Bs, lane, simdgroup, tile, thread_position);
}
