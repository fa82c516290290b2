// simdgroup_32x32_shared: SIMD-group matrices fed from threadgroup memory.
//
//   C[m, n] = sum_k A[m, k] B[k, n]            float32, row-major, M, N, K multiples of 32
//
//   grid              N/32 x M/32 threadgroups of 2x2 SIMD groups
//   threadgroup       per step of 32 its 128 threads stage 32x32 of A and 32x32 of B
//   SIMD group        16x16 of C as 2x2 accumulators, four inner steps of 8
//   threadgroup bytes 2 * 4 * 32 * 33 = 8448; the 33rd column keeps the rows of a fragment in different banks
//   requested bytes   4 K (MN/32 + NM/32) = MNK/4 read, 4 MN written
//   FLOP/byte         8
//
// simdgroup_32x32 loads the same rows and columns in two SIMD groups each; staged once, they are read from device
// memory half as often, for two barriers per step.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "metal/common/instantiate.h"
#include "metal/shared/params.h"

using namespace metal;
using namespace mlx_gemm;

template <int BM, int BN, int BK, int WM, int WN>
[[kernel, max_total_threads_per_threadgroup(32 * WM * WN)]] void simdgroup_32x32_shared(
    device const float* A [[buffer(kBufferA)]],
    device const float* B [[buffer(kBufferB)]],
    device float* C [[buffer(kBufferC)]],
    constant GemmParams& p [[buffer(kBufferParams)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr int THREADS = 32 * WM * WN;
  constexpr int FM = BM / WM / 8;  // fragments of a SIMD group, down and across
  constexpr int FN = BN / WN / 8;
  constexpr int A_STRIDE = BK + 1;
  constexpr int B_STRIDE = BN + 1;
  static_assert(BM == WM * FM * 8 && BN == WN * FN * 8 && BK % 8 == 0, "fragments tile the output");

  threadgroup float a_tile[BM * A_STRIDE];
  threadgroup float b_tile[BK * B_STRIDE];

  const int row0 = int(group.y) * BM;
  const int col0 = int(group.x) * BN;
  const int row = int(simdgroup) / WN * FM * 8;
  const int col = int(simdgroup) % WN * FN * 8;

  simdgroup_float8x8 acc[FM][FN];
  for (int i = 0; i < FM; ++i) {
    for (int j = 0; j < FN; ++j) {
      acc[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }

  for (int k0 = 0; k0 < p.K; k0 += BK) {
    for (int i = int(thread_index); i < BM * BK; i += THREADS) {
      a_tile[i / BK * A_STRIDE + i % BK] = A[(row0 + i / BK) * p.lda + k0 + i % BK];
    }
    for (int i = int(thread_index); i < BK * BN; i += THREADS) {
      b_tile[i / BN * B_STRIDE + i % BN] = B[(k0 + i / BN) * p.ldb + col0 + i % BN];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (int k = 0; k < BK; k += 8) {
      simdgroup_float8x8 a[FM];
      simdgroup_float8x8 b[FN];
      for (int i = 0; i < FM; ++i) {
        simdgroup_load(a[i], a_tile + (row + 8 * i) * A_STRIDE + k, A_STRIDE);
      }
      for (int j = 0; j < FN; ++j) {
        simdgroup_load(b[j], b_tile + k * B_STRIDE + col + 8 * j, B_STRIDE);
      }
      for (int i = 0; i < FM; ++i) {
        for (int j = 0; j < FN; ++j) {
          simdgroup_multiply_accumulate(acc[i][j], a[i], b[j], acc[i][j]);
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  for (int i = 0; i < FM; ++i) {
    for (int j = 0; j < FN; ++j) {
      simdgroup_store(acc[i][j], C + (row0 + row + 8 * i) * p.ldc + col0 + col + 8 * j, p.ldc);
    }
  }
}

#define GEMM_SIMDGROUP_32X32_SHARED(NAME, BM, BN, BK, WM, WN, ...) \
  GEMM_INSTANTIATE(NAME, simdgroup_32x32_shared<BM, BN, BK, WM, WN>)
#include "metal/shared/gemm_kernels.def"
