// tiled: a threadgroup stages tiles of A and B in threadgroup memory and every thread reads them from there.
//
//   C[m, n] = sum_k A[m, k] B[k, n]            float32, row-major, M, N, K >= 1
//
//   grid              ceil(N/BN) x ceil(M/BM) threadgroups of BN x BM threads
//   threadgroup       a BM x BN tile of C; per step of BK it loads BM x BK of A and BK x BN of B
//   thread            one element of C
//   threadgroup bytes 4 (BM BK + BK BN)
//   requested bytes   4 K (M ceil(N/BN) + N ceil(M/BM)) read, 4 MN written
//   FLOP/byte         BM BN / (2 (BM + BN)): 4 for 16x16, 8 for 32x32; BK cancels out
//
// Two barriers per step: one before the tile is used, one before it is overwritten. Elements outside the matrices
// are staged as zeros, so any shape works. naive read each operand element once per output; here once per tile.
#include <metal_stdlib>

#include "metal/common/instantiate.h"
#include "metal/shared/params.h"

using namespace metal;
using namespace mlx_gemm;

template <int BM, int BN, int BK, int THREADS>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void tiled(
    device const float* A [[buffer(kBufferA)]],
    device const float* B [[buffer(kBufferB)]],
    device float* C [[buffer(kBufferC)]],
    constant GemmParams& p [[buffer(kBufferParams)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint2 local [[thread_position_in_threadgroup]]) {
  static_assert(BM * BN == THREADS, "one output per thread");

  threadgroup float a_tile[BM][BK];
  threadgroup float b_tile[BK][BN];

  const int row0 = int(group.y) * BM;
  const int col0 = int(group.x) * BN;
  const int thread_index = int(local.y) * BN + int(local.x);

  float sum = 0.0f;
  for (int k0 = 0; k0 < p.K; k0 += BK) {
    for (int i = thread_index; i < BM * BK; i += THREADS) {
      const int m = row0 + i / BK;
      const int k = k0 + i % BK;
      a_tile[i / BK][i % BK] = m < p.M && k < p.K ? A[m * p.lda + k] : 0.0f;
    }
    for (int i = thread_index; i < BK * BN; i += THREADS) {
      const int k = k0 + i / BN;
      const int n = col0 + i % BN;
      b_tile[i / BN][i % BN] = k < p.K && n < p.N ? B[k * p.ldb + n] : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (int k = 0; k < BK; ++k) {
      sum += a_tile[local.y][k] * b_tile[k][local.x];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  const int m = row0 + int(local.y);
  const int n = col0 + int(local.x);
  if (m < p.M && n < p.N) {
    C[m * p.ldc + n] = sum;
  }
}

#define GEMM_TILED(NAME, BM, BN, BK, WM, WN, ...) GEMM_INSTANTIATE(NAME, tiled<BM, BN, BK, 32 * WM * WN>)
#include "metal/shared/gemm_kernels.def"
