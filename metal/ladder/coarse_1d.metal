// coarse_1d: each thread computes TM outputs down one column, so a value of B read from threadgroup memory is used
// TM times from a register.
//
//   C[m, n] = sum_k A[m, k] B[k, n]            float32, row-major, M, N, K >= 1
//
//   grid              ceil(N/64) x ceil(M/64) threadgroups of 512 threads
//   threadgroup       a 64x64 tile of C; per step of 8 it loads 64x8 of A and 8x64 of B, one element of each per thread
//   thread            8x1 outputs
//   threadgroup bytes 4 (BM BK + BK BN) = 4096
//   requested bytes   4 K (M ceil(N/64) + N ceil(M/64)) read, 4 MN written
//   FLOP/byte         BM BN / (2 (BM + BN)) = 16
//
// tiled issues two threadgroup loads per multiply-add; here it is 1 + 1/8, and one threadgroup covers four times
// the tile with half the threads.
#include <metal_stdlib>

#include "metal/common/instantiate.h"
#include "metal/shared/params.h"

using namespace metal;
using namespace mlx_gemm;

template <int BM, int BN, int BK, int THREADS>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void coarse_1d(
    device const float* A [[buffer(kBufferA)]],
    device const float* B [[buffer(kBufferB)]],
    device float* C [[buffer(kBufferC)]],
    constant GemmParams& p [[buffer(kBufferParams)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  constexpr int TM = BM * BN / THREADS;
  static_assert(BM * BK == THREADS && BK * BN == THREADS, "each thread stages one element of A and one of B");
  static_assert(BM % TM == 0, "a thread's outputs stay in one column");

  threadgroup float a_tile[BM][BK];
  threadgroup float b_tile[BK][BN];

  const int row0 = int(group.y) * BM;
  const int col0 = int(group.x) * BN;
  const int t = int(thread_index);
  const int thread_row = t / BN * TM;
  const int thread_col = t % BN;
  const int a_row = t / BK;
  const int a_col = t % BK;
  const int b_row = t / BN;
  const int b_col = t % BN;

  float sum[TM] = {0.0f};
  for (int k0 = 0; k0 < p.K; k0 += BK) {
    const bool a_inside = row0 + a_row < p.M && k0 + a_col < p.K;
    const bool b_inside = k0 + b_row < p.K && col0 + b_col < p.N;
    a_tile[a_row][a_col] = a_inside ? A[(row0 + a_row) * p.lda + k0 + a_col] : 0.0f;
    b_tile[b_row][b_col] = b_inside ? B[(k0 + b_row) * p.ldb + col0 + b_col] : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (int k = 0; k < BK; ++k) {
      const float b = b_tile[k][thread_col];
      for (int i = 0; i < TM; ++i) {
        sum[i] += a_tile[thread_row + i][k] * b;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  const int n = col0 + thread_col;
  for (int i = 0; i < TM; ++i) {
    const int m = row0 + thread_row + i;
    if (m < p.M && n < p.N) {
      C[m * p.ldc + n] = sum[i];
    }
  }
}

#define GEMM_COARSE_1D(NAME, BM, BN, BK, WM, WN, ...) GEMM_INSTANTIATE(NAME, coarse_1d<BM, BN, BK, 32 * WM * WN>)
#include "metal/shared/gemm_kernels.def"
