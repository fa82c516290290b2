// simd_gemm_direct: simd_gemm without threadgroup memory.
//
//   D = activation(alpha A B + beta C) + residual         operands and results as for simd_gemm
//
//   grid              ceil(N/BN) 2^swizzle x ceil(ceil(M/BM) / 2^swizzle) x batch threadgroups of WM WN SIMD groups
//   SIMD group        BM/WM x BN/WN of D as 8x8 accumulators, fragments fetched from device memory element by element
//   threadgroup bytes 0
//   requested bytes   sizeof(T) K (M ceil(N WN/BN) + N ceil(M WM/BM)) read
//
// For matrices of a few tiles, where two barriers per step cost more than the shared reads save. SIMD groups never wait
// for each other, so one that has nothing to do leaves.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "metal/common/epilogue.h"
#include "metal/common/fragments.h"
#include "metal/common/fused_gemm.h"
#include "metal/common/instantiate.h"
#include "metal/shared/params.h"

using namespace metal;
using namespace mlx_gemm;

template <typename T, typename O, int BM, int BN, int BK, int WM, int WN>
[[kernel, max_total_threads_per_threadgroup(32 * WM * WN)]] void simd_gemm_direct(
    device const T* A [[buffer(kBufferA)]],
    device const T* B [[buffer(kBufferB)]],
    device O* D [[buffer(kBufferC)]],
    constant FusedGemmParams& p [[buffer(kBufferParams)]],
    device const O* C [[buffer(kBufferAddend), function_constant(has_c)]],
    device const O* residual [[buffer(kBufferResidual), function_constant(has_residual)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  constexpr int FM = BM / WM / 8;
  constexpr int FN = BN / WN / 8;
  static_assert(BM == WM * FM * 8 && BN == WN * FN * 8 && BK == 8, "fragments tile the output");

  const TilePosition tile = fused_tile<BM, BN>(group.x, group.y, p);
  const FragmentPosition at = fragment_position(lane);
  const int row0 = int(tile.row) * BM + int(simdgroup) / WN * FM * 8;
  const int column0 = int(tile.column) * BN + int(simdgroup) % WN * FN * 8;
  if (row0 >= p.M || column0 >= p.N) {
    return;
  }
  const FragmentStrides a_strides = {transpose_a ? 1 : p.lda, transpose_a ? p.lda : 1};
  const FragmentStrides b_strides = {transpose_b ? 1 : p.ldb, transpose_b ? p.ldb : 1};
  device const T* a =
      A + p.a_origin + batch_offset(group.z, p.batch_shape, p.a_batch_strides) + size_t(row0) * size_t(a_strides.row);
  device const T* b = B + p.b_origin + batch_offset(group.z, p.batch_shape, p.b_batch_strides) +
                      size_t(column0) * size_t(b_strides.column);

  simdgroup_float8x8 acc[FM * FN];
#pragma clang loop unroll(full)
  for (int i = 0; i < FM * FN; ++i) {
    acc[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  for (int k = 0; k < p.K; k += 8) {
    simdgroup_float8x8 a_fragments[FM];
    simdgroup_float8x8 b_fragments[FN];
#pragma clang loop unroll(full)
    for (int i = 0; i < FM; ++i) {
      device const T* from = a + size_t(8 * i) * size_t(a_strides.row);
      load_fragment(a_fragments[i], from, a_strides, at, p.M - row0 - 8 * i, p.K - k);
    }
#pragma clang loop unroll(full)
    for (int j = 0; j < FN; ++j) {
      device const T* from = b + size_t(8 * j) * size_t(b_strides.column);
      load_fragment(b_fragments[j], from, b_strides, at, p.K - k, p.N - column0 - 8 * j);
    }
    multiply_fragments<FM, FN>(acc, a_fragments, b_fragments);
    a += size_t(8) * size_t(a_strides.column);
    b += size_t(8) * size_t(b_strides.row);
  }

  const EpilogueTile<O> addends = epilogue_tile(C, residual, group.z, row0, column0, p);
  device O* d = D + (size_t(group.z) * size_t(p.M) + size_t(row0)) * size_t(p.N) + size_t(column0);
  store_fragments<O, FM, FN>(acc, d, addends, at, p.M - row0, p.N - column0, p);
}

#define GEMM_SIMD_GEMM_DIRECT(NAME, BM, BN, BK, WM, WN, ...) \
  GEMM_INSTANTIATE_TYPES(NAME, simd_gemm_direct, BM, BN, BK, WM, WN)
#include "metal/shared/gemm_kernels.def"
