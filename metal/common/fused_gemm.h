// What production kernels do before they multiply: the function constants, the tile and the matrices of a batch.
#pragma once

#include <metal_stdlib>

#include "metal/common/tile_order.h"
#include "metal/shared/params.h"

namespace mlx_gemm {

constant bool transpose_a [[function_constant(kConstantTransposeA)]];
constant bool transpose_b [[function_constant(kConstantTransposeB)]];

// The tile of the threadgroup at (x, y) of the grid, which lies outside D where the grid is larger than that.
template <int BM, int BN>
inline TilePosition fused_tile(uint x, uint y, constant FusedGemmParams& p) {
  const uint tiles_m = uint((p.M + BM - 1) / BM);
  const uint tiles_n = uint((p.N + BN - 1) / BN);
  return ordered_tile(x, y, TileOrder(p.order), tiles_m, tiles_n);
}

// Elements from the first matrix of a batch to that of index `index`, the last dimension fastest.
inline size_t batch_offset(uint index, constant int32_t* shape, constant int64_t* strides) {
  long offset = 0;
  for (int dim = kBatchDims - 1; dim >= 0; --dim) {
    offset += long(index % uint(shape[dim])) * long(strides[dim]);
    index /= uint(shape[dim]);
  }
  return size_t(offset);
}

}  // namespace mlx_gemm
