// simd_gemm: any product on any Apple GPU, with SIMD-group matrices.
//
//   D = activation(alpha A B + beta C) + residual
//
//   A, B              float, half or bfloat; each plain or transposed, any leading dimension, batches with any strides
//   D, C, residual    the type of A and B, or float; accumulated in float
//   grid              ceil(N/BN) 2^swizzle x ceil(ceil(M/BM) / 2^swizzle) x batch threadgroups of WM WN SIMD groups
//   threadgroup       per step of BK its threads stage BM x BK of A and BK x BN of B as they are stored
//   SIMD group        BM/WM x BN/WN of D as 8x8 accumulators
//   threadgroup bytes blocks of A and B, the larger of both orientations, rows padded by 16 bytes
//   requested bytes   sizeof(T) K (M ceil(N/BN) + N ceil(M/BM)) read
//
// Operands are converted to float on their way from threadgroup memory into the fragments, so that one multiply serves
// every type. Edges and the last step along K are filled with zeros in both operands: nothing outside A and B is read,
// and no NaN of a neighbour meets a zero.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "metal/common/epilogue.h"
#include "metal/common/fragments.h"
#include "metal/common/fused_gemm.h"
#include "metal/common/instantiate.h"
#include "metal/common/loader.h"
#include "metal/shared/params.h"

using namespace metal;
using namespace mlx_gemm;

template <typename T, typename O, int BM, int BN, int BK, int WM, int WN>
[[kernel, max_total_threads_per_threadgroup(32 * WM * WN)]] void simd_gemm(
    device const T* A [[buffer(kBufferA)]],
    device const T* B [[buffer(kBufferB)]],
    device O* D [[buffer(kBufferC)]],
    constant FusedGemmParams& p [[buffer(kBufferParams)]],
    device const O* C [[buffer(kBufferAddend), function_constant(has_c)]],
    device const O* residual [[buffer(kBufferResidual), function_constant(has_residual)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  constexpr int THREADS = 32 * WM * WN;
  constexpr int FM = BM / WM / 8;  // fragments of a SIMD group, down and across
  constexpr int FN = BN / WN / 8;
  constexpr int PAD = 16 / int(sizeof(T));  // keeps the rows of a fragment in different banks
  constexpr int A_PLAIN = BM * (BK + PAD);
  constexpr int A_TRANSPOSED = BK * (BM + PAD);
  constexpr int B_PLAIN = BK * (BN + PAD);
  constexpr int B_TRANSPOSED = BN * (BK + PAD);
  static_assert(BM == WM * FM * 8 && BN == WN * FN * 8 && BK % 8 == 0, "fragments tile the output");
  threadgroup T a_block[A_PLAIN > A_TRANSPOSED ? A_PLAIN : A_TRANSPOSED];
  threadgroup T b_block[B_PLAIN > B_TRANSPOSED ? B_PLAIN : B_TRANSPOSED];

  const TilePosition tile = fused_tile<BM, BN>(group.x, group.y, p);
  const int row0 = int(tile.row) * BM;
  const int column0 = int(tile.column) * BN;
  if (row0 >= p.M || column0 >= p.N) {
    return;
  }
  const int rows = min(BM, p.M - row0);
  const int columns = min(BN, p.N - column0);
  device const T* a = A + p.a_origin + batch_offset(group.z, p.batch_shape, p.a_batch_strides) +
                      size_t(row0) * size_t(transpose_a ? 1 : p.lda);
  device const T* b = B + p.b_origin + batch_offset(group.z, p.batch_shape, p.b_batch_strides) +
                      size_t(column0) * size_t(transpose_b ? p.ldb : 1);
  const FragmentStrides a_strides = {transpose_a ? 1 : BK + PAD, transpose_a ? BM + PAD : 1};
  const FragmentStrides b_strides = {transpose_b ? 1 : BN + PAD, transpose_b ? BK + PAD : 1};
  const FragmentPosition at = fragment_position(lane);
  const FragmentPosition corner = {int(simdgroup) / WN * FM * 8, int(simdgroup) % WN * FN * 8};

  simdgroup_float8x8 acc[FM * FN];
#pragma clang loop unroll(full)
  for (int i = 0; i < FM * FN; ++i) {
    acc[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  for (int k0 = 0; k0 < p.K; k0 += BK) {
    const int depth = min(BK, p.K - k0);
    if (transpose_a) {
      load_block<T, BK, BM, BM + PAD, THREADS>(a_block, a, p.lda, depth, rows, thread_index);
    } else {
      load_block<T, BM, BK, BK + PAD, THREADS>(a_block, a, p.lda, rows, depth, thread_index);
    }
    if (transpose_b) {
      load_block<T, BN, BK, BK + PAD, THREADS>(b_block, b, p.ldb, columns, depth, thread_index);
    } else {
      load_block<T, BK, BN, BN + PAD, THREADS>(b_block, b, p.ldb, depth, columns, thread_index);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int k = 0; k < BK; k += 8) {
      simdgroup_float8x8 a_fragments[FM];
      simdgroup_float8x8 b_fragments[FN];
#pragma clang loop unroll(full)
      for (int i = 0; i < FM; ++i) {
        const int offset = (corner.row + 8 * i) * a_strides.row + k * a_strides.column;
        load_fragment(a_fragments[i], a_block + offset, a_strides, at);
      }
#pragma clang loop unroll(full)
      for (int j = 0; j < FN; ++j) {
        const int offset = k * b_strides.row + (corner.column + 8 * j) * b_strides.column;
        load_fragment(b_fragments[j], b_block + offset, b_strides, at);
      }
      multiply_fragments<FM, FN>(acc, a_fragments, b_fragments);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    a += size_t(BK) * size_t(transpose_a ? p.lda : 1);
    b += size_t(BK) * size_t(transpose_b ? 1 : p.ldb);
  }

  const EpilogueTile<O> addends = epilogue_tile(C, residual, group.z, row0, column0, p);
  device O* d = D + (size_t(group.z) * size_t(p.M) + size_t(row0)) * size_t(p.N) + size_t(column0);
  store_fragments<O, FM, FN>(acc, d, addends, {corner.row + at.row, corner.column + at.column}, rows, columns, p);
}

#define GEMM_SIMD_GEMM(NAME, BM, BN, BK, WM, WN, ...) GEMM_INSTANTIATE_TYPES(NAME, simd_gemm, BM, BN, BK, WM, WN)
#include "metal/shared/gemm_kernels.def"
