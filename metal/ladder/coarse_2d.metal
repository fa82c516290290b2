// coarse_2d: each thread computes a TM x TN block of outputs from TM + TN values held in registers.
//
//   C[m, n] = sum_k A[m, k] B[k, n]            float32, row-major, M, N, K >= 1
//
//   grid              ceil(N/128) x ceil(M/128) threadgroups of 256 threads
//   threadgroup       a 128x128 tile of C; per step of 8 it loads 128x8 of A and 8x128 of B
//   thread            8x8 outputs; an outer product of 8 values of A and 8 of B per k
//   threadgroup bytes 4 (BM BK + BK BN) = 8192
//   requested bytes   4 K (M ceil(N/128) + N ceil(M/128)) read, 4 MN written
//   FLOP/byte         BM BN / (2 (BM + BN)) = 32
//
// coarse_1d reuses B only; here both operands are reused 8 times: 1/4 threadgroup load per multiply-add.
// The price is 64 accumulators per thread.
#include <metal_stdlib>

#include "metal/common/instantiate.h"
#include "metal/shared/params.h"

using namespace metal;
using namespace mlx_gemm;

template <int BM, int BN, int BK, int THREADS>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void coarse_2d(
    device const float* A [[buffer(kBufferA)]],
    device const float* B [[buffer(kBufferB)]],
    device float* C [[buffer(kBufferC)]],
    constant GemmParams& p [[buffer(kBufferParams)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  constexpr int TM = 8;
  constexpr int TN = 8;
  static_assert(BM * BN == THREADS * TM * TN, "the threads' blocks tile the output");

  threadgroup float a_tile[BM][BK];
  threadgroup float b_tile[BK][BN];

  const int row0 = int(group.y) * BM;
  const int col0 = int(group.x) * BN;
  const int t = int(thread_index);
  const int thread_row = t / (BN / TN) * TM;
  const int thread_col = t % (BN / TN) * TN;

  float sum[TM][TN] = {{0.0f}};
  for (int k0 = 0; k0 < p.K; k0 += BK) {
    for (int i = t; i < BM * BK; i += THREADS) {
      const int m = row0 + i / BK;
      const int k = k0 + i % BK;
      a_tile[i / BK][i % BK] = m < p.M && k < p.K ? A[m * p.lda + k] : 0.0f;
    }
    for (int i = t; i < BK * BN; i += THREADS) {
      const int k = k0 + i / BN;
      const int n = col0 + i % BN;
      b_tile[i / BN][i % BN] = k < p.K && n < p.N ? B[k * p.ldb + n] : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (int k = 0; k < BK; ++k) {
      float a[TM];
      float b[TN];
      for (int i = 0; i < TM; ++i) {
        a[i] = a_tile[thread_row + i][k];
      }
      for (int j = 0; j < TN; ++j) {
        b[j] = b_tile[k][thread_col + j];
      }
      for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; ++j) {
          sum[i][j] += a[i] * b[j];
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  for (int i = 0; i < TM; ++i) {
    for (int j = 0; j < TN; ++j) {
      const int m = row0 + thread_row + i;
      const int n = col0 + thread_col + j;
      if (m < p.M && n < p.N) {
        C[m * p.ldc + n] = sum[i][j];
      }
    }
  }
}

#define GEMM_COARSE_2D(NAME, BM, BN, BK, WM, WN, ...) GEMM_INSTANTIATE(NAME, coarse_2d<BM, BN, BK, 32 * WM * WN>)
#include "metal/shared/gemm_kernels.def"
