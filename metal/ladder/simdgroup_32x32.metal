// simdgroup_32x32: register blocking with SIMD-group matrices.
//
//   C[m, n] = sum_k A[m, k] B[k, n]            float32, row-major, M, N multiples of 32, K of 8
//
//   grid              N/32 x M/32 threadgroups of 2x2 SIMD groups
//   SIMD group        16x16 of C as 2x2 accumulators; per step of 8, two A and two B fragments feed four products
//   threadgroup bytes 0
//   requested bytes   4 K (MN/16 + NM/16) = MNK/2 read, 4 MN written
//   FLOP/byte         4
//
// simdgroup_8x8 loads two fragments per product; here it is one. The four SIMD groups still load the same rows and
// columns twice: they share no memory.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "metal/common/instantiate.h"
#include "metal/shared/params.h"

using namespace metal;
using namespace mlx_gemm;

template <int BM, int BN, int BK, int WM, int WN>
[[kernel, max_total_threads_per_threadgroup(32 * WM * WN)]] void simdgroup_32x32(
    device const float* A [[buffer(kBufferA)]],
    device const float* B [[buffer(kBufferB)]],
    device float* C [[buffer(kBufferC)]],
    constant GemmParams& p [[buffer(kBufferParams)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr int FM = BM / WM / 8;  // fragments of a SIMD group, down and across
  constexpr int FN = BN / WN / 8;
  static_assert(BM == WM * FM * 8 && BN == WN * FN * 8 && BK == 8, "fragments tile the output");

  const int row = int(group.y) * BM + int(simdgroup) / WN * FM * 8;
  const int col = int(group.x) * BN + int(simdgroup) % WN * FN * 8;

  simdgroup_float8x8 acc[FM][FN];
  for (int i = 0; i < FM; ++i) {
    for (int j = 0; j < FN; ++j) {
      acc[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }

  for (int k = 0; k < p.K; k += BK) {
    simdgroup_float8x8 a[FM];
    simdgroup_float8x8 b[FN];
    for (int i = 0; i < FM; ++i) {
      simdgroup_load(a[i], A + (row + 8 * i) * p.lda + k, p.lda);
    }
    for (int j = 0; j < FN; ++j) {
      simdgroup_load(b[j], B + k * p.ldb + col + 8 * j, p.ldb);
    }
    for (int i = 0; i < FM; ++i) {
      for (int j = 0; j < FN; ++j) {
        simdgroup_multiply_accumulate(acc[i][j], a[i], b[j], acc[i][j]);
      }
    }
  }

  for (int i = 0; i < FM; ++i) {
    for (int j = 0; j < FN; ++j) {
      simdgroup_store(acc[i][j], C + (row + 8 * i) * p.ldc + col + 8 * j, p.ldc);
    }
  }
}

#define GEMM_SIMDGROUP_32X32(NAME, BM, BN, BK, WM, WN, ...) GEMM_INSTANTIATE(NAME, simdgroup_32x32<BM, BN, BK, WM, WN>)
#include "metal/shared/gemm_kernels.def"
