// naive: one thread per output element.
//
//   C[m, n] = sum_k A[m, k] B[k, n]            float32, row-major, M, N, K >= 1
//
//   grid              ceil(N/32) x ceil(M/32) threadgroups of 32x32 threads
//   thread            one element of C, a dot product of a row of A and a column of B
//   threadgroup bytes 0
//   requested bytes   8 MNK read, 4 MN written: every operand element again for every output
//   FLOP/byte         1/4
//
// Nothing is reused on purpose; only the caches stand between this loop and the memory bus.
#include <metal_stdlib>

#include "metal/common/instantiate.h"
#include "metal/shared/params.h"

using namespace metal;
using namespace mlx_gemm;

template <int THREADS>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void naive(
    device const float* A [[buffer(kBufferA)]],
    device const float* B [[buffer(kBufferB)]],
    device float* C [[buffer(kBufferC)]],
    constant GemmParams& p [[buffer(kBufferParams)]],
    uint2 position [[thread_position_in_grid]]) {
  const int m = int(position.y);
  const int n = int(position.x);
  if (m >= p.M || n >= p.N) {
    return;
  }
  float sum = 0.0f;
  for (int k = 0; k < p.K; ++k) {
    sum += A[m * p.lda + k] * B[k * p.ldb + n];
  }
  C[m * p.ldc + n] = sum;
}

#define GEMM_NAIVE(NAME, BM, BN, BK, WM, WN, ...) GEMM_INSTANTIATE(NAME, naive<32 * WM * WN>)
#include "metal/shared/gemm_kernels.def"
