// tensorops: one matmul2d of Metal Performance Primitives per output tile, over the whole of K.
//
//   C[m, n] = sum_k A[m, k] B[k, n]            float32, row-major, M, N, K >= 1
//
//   grid              ceil(N/BN) x ceil(M/BM) threadgroups (1-D for the Morton rows) of WM WN SIMD groups
//   threadgroup       a BM x BN tile of C, written by one cooperative operation of all its SIMD groups
//   threadgroup bytes 0
//   requested bytes   4 K (M ceil(N/BN) + N ceil(M/BM)) read, 4 MN written
//   FLOP/byte         BM BN / (2 (BM + BN)): 16 for 64x64, 21.3 for 64x128, 32 for 128x128
//
// Where the operands lie and how the lanes share the work is matmul2d's business: the fragments of the SIMD-group
// rungs disappear, and on Apple10 GPUs the operation can use the neural accelerators. Inside tiles are sliced with
// static extents, which spares the edge checks; edge tiles have dynamic ones, so that reads stop and stores are
// clipped at the matrix. K is dynamic: its length comes from the slices, exactly.
//
// A slice that starts 2 GiB or more into its matrix is addressed wrongly by current GPUs; operands are limited to
// less (csrc/select.cpp).
//
// Toolchains before macOS 26 have no tensors: for them the file is empty.
#if defined(__HAVE_TENSOR__) && __has_include(<MetalPerformancePrimitives/MetalPerformancePrimitives.h>)
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#include <metal_stdlib>
#include <metal_tensor>

#include "metal/common/instantiate.h"
#include "metal/common/tile_order.h"
#include "metal/shared/params.h"

using namespace metal;
using namespace mpp::tensor_ops;
using namespace mlx_gemm;

// Operands are not const: matmul2d rejects tensors of const elements.
template <int BM, int BN, int SIMDGROUPS, TileOrder ORDER>
[[kernel, max_total_threads_per_threadgroup(32 * SIMDGROUPS)]] void tensorops(
    device float* A [[buffer(kBufferA)]],
    device float* B [[buffer(kBufferB)]],
    device float* C [[buffer(kBufferC)]],
    constant GemmParams& p [[buffer(kBufferParams)]],
    uint2 group [[threadgroup_position_in_grid]]) {
  using Matrix = tensor<device float, dextents<int, 2>, tensor_inline>;
  constexpr auto descriptor = matmul2d_descriptor(
      BM, BN, static_cast<int>(dynamic_extent), false, false, false, matmul2d_descriptor::mode::multiply);
  matmul2d<descriptor, execution_simdgroups<SIMDGROUPS>> op;

  // Extents and strides start at the contiguous dimension: (columns, rows).
  Matrix a(A, dextents<int, 2>(p.K, p.M), array<int, 2>{1, p.lda});
  Matrix b(B, dextents<int, 2>(p.N, p.K), array<int, 2>{1, p.ldb});
  Matrix c(C, dextents<int, 2>(p.N, p.M), array<int, 2>{1, p.ldc});

  const TilePosition tile = tile_of<ORDER, BM, BN>(group.x, group.y, p.M, p.N);
  const int row = int(tile.row) * BM;
  const int col = int(tile.column) * BN;
  // lint: allow(large-slice) select.cpp keeps each operand below 2 GiB; slices are what this rung shows
  if (row + BM <= p.M && col + BN <= p.N) {
    auto a_rows = a.slice<dynamic_extent, BM>(0, row);
    auto b_columns = b.slice<BN, dynamic_extent>(col, 0);
    auto c_tile = c.slice<BN, BM>(col, row);
    op.run(a_rows, b_columns, c_tile);
  } else {
    auto a_rows = a.slice(0, row);
    auto b_columns = b.slice(col, 0);
    auto c_tile = c.slice(col, row);
    op.run(a_rows, b_columns, c_tile);
  }
}

#define GEMM_TENSOROPS(NAME, BM, BN, BK, WM, WN, ORDER, ...) \
  GEMM_INSTANTIATE(NAME, tensorops<BM, BN, WM * WN, TileOrder::ORDER>)
#include "metal/shared/gemm_kernels.def"
#endif
