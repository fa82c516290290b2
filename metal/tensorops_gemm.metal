// tensorops_gemm: any product with matmul2d of Metal Performance Primitives, SIMD groups kept in step along K.
//
//   D = activation(alpha A B + beta C) + residual
//
//   A, B              float, half or bfloat; each plain or transposed, any leading dimension, batches with any strides
//   D, C, residual    the type of A and B, or float; accumulated in float
//   grid              ceil(N/BN) 2^swizzle x ceil(ceil(M/BM) / 2^swizzle) x batch threadgroups
//   threadgroup       a BM x BN tile of D in a cooperative tensor; per step of BK a barrier and one matmul2d
//   threadgroup bytes 0
//   requested bytes   sizeof(T) K (M ceil(N/BN) + N ceil(M/BM)) read
//   FLOP/byte         BM BN / (2 (BM + BN)) for float, twice that for the half types
//
// tensorops_sync made general. Its static extents stay where a whole tile meets a whole number of steps. Everywhere
// else K is dynamic, so that the last step ends where the matrix does: a static k is not clamped. At the edges M and N
// are dynamic too, which clips reads and stores. BK = 0 stands for one operation over all of K, without barriers.
//
// Every tile is built from a 64-bit pointer: no offset inside a tensor grows large. Elements are finished one by one
// through the coordinates that the tensor itself tells, which holds for any layout of its lanes.
//
// Toolchains before macOS 26 have no tensors: for them the file is empty.
#if defined(__HAVE_TENSOR__) && __has_include(<MetalPerformancePrimitives/MetalPerformancePrimitives.h>)
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#include <metal_stdlib>
#include <metal_tensor>

#include "metal/common/epilogue.h"
#include "metal/common/fused_gemm.h"
#include "metal/common/instantiate.h"
#include "metal/shared/params.h"

using namespace metal;
using namespace mpp::tensor_ops;
using namespace mlx_gemm;

// What of a tile is known when the kernel is compiled.
enum class Known {
  all,      // M, N and each step along K
  outputs,  // M and N
  nothing
};

// Extents of a matrix of ROWS x COLUMNS, 0 for a dynamic one, or its transpose; the contiguous dimension comes first.
template <int ROWS, int COLUMNS, bool TRANSPOSED>
struct Extents {
  static constexpr constant size_t ROW_EXTENT = ROWS ? size_t(ROWS) : dynamic_extent;
  static constexpr constant size_t COLUMN_EXTENT = COLUMNS ? size_t(COLUMNS) : dynamic_extent;
  using type = extents<int, TRANSPOSED ? ROW_EXTENT : COLUMN_EXTENT, TRANSPOSED ? COLUMN_EXTENT : ROW_EXTENT>;

  static type make(int rows, int columns) {
    if constexpr (ROWS != 0 && COLUMNS != 0) {
      return type();
    } else if constexpr (ROWS != 0) {
      return type(columns);
    } else if constexpr (COLUMNS != 0) {
      return type(rows);
    } else {
      return TRANSPOSED ? type(rows, columns) : type(columns, rows);
    }
  }
};

// A tile's operands at their first elements, and what is left of D from its own first element on.
template <typename T, typename O>
struct TileOperands {
  device T* a;
  device T* b;
  device O* d;
  EpilogueTile<O> addends;
  int rows;
  int columns;
};

template <typename T, typename O, int BM, int BN, int BK, int SIMDGROUPS, bool RELAXED, bool TA, bool TB, Known KNOWN>
inline void multiply_tile(thread TileOperands<T, O>& tile, constant FusedGemmParams& p) {
  constexpr int ROWS = KNOWN == Known::nothing ? 0 : BM;
  constexpr int COLUMNS = KNOWN == Known::nothing ? 0 : BN;
  constexpr int DEPTH = KNOWN == Known::all ? BK : 0;
  using AExtents = Extents<ROWS, DEPTH, TA>;
  using BExtents = Extents<DEPTH, COLUMNS, TB>;
  using ATile = tensor<device T, typename AExtents::type, tensor_inline>;
  using BTile = tensor<device T, typename BExtents::type, tensor_inline>;
  constexpr auto descriptor = matmul2d_descriptor(
      BM, BN, DEPTH ? DEPTH : static_cast<int>(dynamic_extent), TA, TB, RELAXED,
      matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<descriptor, execution_simdgroups<SIMDGROUPS>> op;

  auto acc = op.template get_destination_cooperative_tensor<ATile, BTile, float>();
#pragma clang loop unroll(full)
  for (ushort i = 0; i < acc.get_capacity(); ++i) {
    if (acc.is_valid_element(i)) {
      acc[i] = 0.0f;
    }
  }

  const int step = BK ? BK : p.K;
  for (int k = 0; k < p.K; k += step) {
    const int depth = min(step, p.K - k);
    if (BK) {
      threadgroup_barrier(mem_flags::mem_none);
    }
    ATile a(tile.a, AExtents::make(tile.rows, depth), array<int, 2>{1, p.lda});
    BTile b(tile.b, BExtents::make(depth, tile.columns), array<int, 2>{1, p.ldb});
    op.run(a, b, acc);
    tile.a += size_t(step) * size_t(TA ? p.lda : 1);
    tile.b += size_t(step) * size_t(TB ? 1 : p.ldb);
  }

  if constexpr (is_same_v<O, float>) {
    if (is_plain(p)) {
      using DExtents = Extents<ROWS, COLUMNS, false>;
      using DTile = tensor<device float, typename DExtents::type, tensor_inline>;
      DTile d(tile.d, DExtents::make(tile.rows, tile.columns), array<int, 2>{1, p.N});
      acc.store(d);
      return;
    }
  }
#pragma clang loop unroll(full)
  for (ushort i = 0; i < acc.get_capacity(); ++i) {
    if (acc.is_valid_element(i)) {
      const auto at = acc.get_multidimensional_index(i);
      const int row = int(at[1]);
      const int column = int(at[0]);
      if (row < tile.rows && column < tile.columns) {
        tile.d[size_t(row) * size_t(p.N) + column] = finish(float(acc[i]), tile.addends, row, column, p);
      }
    }
  }
}

template <typename T, typename O, int BM, int BN, int BK, int SIMDGROUPS, bool RELAXED, bool TA, bool TB>
inline void multiply_tile_in_layout(thread TileOperands<T, O>& tile, constant FusedGemmParams& p) {
  const bool whole = tile.rows == BM && tile.columns == BN;
  if (whole && BK && p.K % (BK ? BK : 1) == 0) {
    multiply_tile<T, O, BM, BN, BK, SIMDGROUPS, RELAXED, TA, TB, BK ? Known::all : Known::outputs>(tile, p);
  } else if (whole) {
    multiply_tile<T, O, BM, BN, BK, SIMDGROUPS, RELAXED, TA, TB, Known::outputs>(tile, p);
  } else {
    multiply_tile<T, O, BM, BN, BK, SIMDGROUPS, RELAXED, TA, TB, Known::nothing>(tile, p);
  }
}

// Operands are not const: matmul2d rejects tensors of const elements.
template <typename T, typename O, int BM, int BN, int BK, int SIMDGROUPS, bool RELAXED>
[[kernel, max_total_threads_per_threadgroup(32 * SIMDGROUPS)]] void tensorops_gemm(
    device T* A [[buffer(kBufferA)]],
    device T* B [[buffer(kBufferB)]],
    device O* D [[buffer(kBufferC)]],
    constant FusedGemmParams& p [[buffer(kBufferParams)]],
    device const O* C [[buffer(kBufferAddend), function_constant(has_c)]],
    device const O* residual [[buffer(kBufferResidual), function_constant(has_residual)]],
    uint3 group [[threadgroup_position_in_grid]]) {
  const TilePosition position = fused_tile<BM, BN>(group.x, group.y, p);
  const int row0 = int(position.row) * BM;
  const int column0 = int(position.column) * BN;
  if (row0 >= p.M || column0 >= p.N) {
    return;
  }
  TileOperands<T, O> tile = {
      A + p.a_origin + batch_offset(group.z, p.batch_shape, p.a_batch_strides) +
          size_t(row0) * size_t(transpose_a ? 1 : p.lda),
      B + p.b_origin + batch_offset(group.z, p.batch_shape, p.b_batch_strides) +
          size_t(column0) * size_t(transpose_b ? p.ldb : 1),
      D + (size_t(group.z) * size_t(p.M) + size_t(row0)) * size_t(p.N) + size_t(column0),
      epilogue_tile(C, residual, group.z, row0, column0, p),
      min(BM, p.M - row0),
      min(BN, p.N - column0)};
  if (transpose_a) {
    if (transpose_b) {
      multiply_tile_in_layout<T, O, BM, BN, BK, SIMDGROUPS, RELAXED, true, true>(tile, p);
    } else {
      multiply_tile_in_layout<T, O, BM, BN, BK, SIMDGROUPS, RELAXED, true, false>(tile, p);
    }
  } else if (transpose_b) {
    multiply_tile_in_layout<T, O, BM, BN, BK, SIMDGROUPS, RELAXED, false, true>(tile, p);
  } else {
    multiply_tile_in_layout<T, O, BM, BN, BK, SIMDGROUPS, RELAXED, false, false>(tile, p);
  }
}

#define GEMM_TENSOROPS_GEMM(NAME, BM, BN, BK, WM, WN, ...) \
  GEMM_INSTANTIATE_TYPES(NAME, tensorops_gemm, BM, BN, BK, WM* WN, false)
#define GEMM_TENSOROPS_GEMM_TF32(NAME, BM, BN, BK, WM, WN, ...) \
  GEMM_INSTANTIATE(NAME##_float32_float32, tensorops_gemm<float, float, BM, BN, BK, WM * WN, true>)
#include "metal/shared/gemm_kernels.def"
#endif
