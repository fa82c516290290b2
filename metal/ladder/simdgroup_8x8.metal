// simdgroup_8x8: the smallest use of SIMD-group matrices, one 8x8 tile of C per SIMD group.
//
//   C[m, n] = sum_k A[m, k] B[k, n]            float32, row-major, M, N, K multiples of 8
//
//   grid              N/8 x M/8 threadgroups of one SIMD group
//   SIMD group        one 8x8 accumulator; per step of 8 one A and one B fragment, straight from device memory
//   lane              two elements of each fragment
//   threadgroup bytes 0
//   requested bytes   4 K (MN/8 + NM/8) = MNK read, 4 MN written
//   FLOP/byte         2
//
// The 8x8x8 product is one instruction for 32 lanes instead of 512 scalar multiply-adds, but two fragments are
// loaded for every one of them: coarse_2d reuses its operands far more.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "metal/common/instantiate.h"
#include "metal/shared/params.h"

using namespace metal;
using namespace mlx_gemm;

template <int BM, int BN, int BK>
[[kernel, max_total_threads_per_threadgroup(32)]] void simdgroup_8x8(
    device const float* A [[buffer(kBufferA)]],
    device const float* B [[buffer(kBufferB)]],
    device float* C [[buffer(kBufferC)]],
    constant GemmParams& p [[buffer(kBufferParams)]],
    uint2 group [[threadgroup_position_in_grid]]) {
  static_assert(BM == 8 && BN == 8 && BK == 8, "one fragment per SIMD group");
  const int row = int(group.y) * BM;
  const int col = int(group.x) * BN;

  simdgroup_float8x8 acc = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (int k = 0; k < p.K; k += BK) {
    simdgroup_float8x8 a;
    simdgroup_float8x8 b;
    simdgroup_load(a, A + row * p.lda + k, p.lda);
    simdgroup_load(b, B + k * p.ldb + col, p.ldb);
    simdgroup_multiply_accumulate(acc, a, b, acc);
  }
  simdgroup_store(acc, C + row * p.ldc + col, p.ldc);
}

#define GEMM_SIMDGROUP_8X8(NAME, BM, BN, BK, ...) GEMM_INSTANTIATE(NAME, simdgroup_8x8<BM, BN, BK>)
#include "metal/shared/gemm_kernels.def"
