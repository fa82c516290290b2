// What happens to an element of the product before it is stored: D = activation(alpha (A B) + beta C) + residual.
#pragma once

#include <metal_stdlib>

#include "metal/common/activation.h"
#include "metal/common/fused_gemm.h"
#include "metal/shared/params.h"

namespace mlx_gemm {

constant bool has_c [[function_constant(kConstantHasC)]];
constant bool has_residual [[function_constant(kConstantHasResidual)]];

// Where a tile's C and residual start, or null.
template <typename O>
struct EpilogueTile {
  device const O* c;
  device const O* residual;
};

inline size_t addend_offset(constant FusedGemmAddend& addend, int row, int column) {
  return size_t(long(row) * long(addend.row_stride) + long(column) * long(addend.column_stride));
}

template <typename O>
inline EpilogueTile<O> epilogue_tile(
    device const O* c,
    device const O* residual,
    uint batch,
    int row,
    int column,
    constant FusedGemmParams& p) {
  EpilogueTile<O> tile = {nullptr, nullptr};
  if (has_c) {
    tile.c = c + p.c.origin + batch_offset(batch, p.batch_shape, p.c.batch_strides) + addend_offset(p.c, row, column);
  }
  if (has_residual) {
    tile.residual = residual + p.residual.origin + batch_offset(batch, p.batch_shape, p.residual.batch_strides) +
                    addend_offset(p.residual, row, column);
  }
  return tile;
}

// Whether the product is the result, apart from its type.
inline bool is_plain(constant FusedGemmParams& p) {
  return p.alpha == 1.0f && !has_c && !has_residual && p.activation == kActivationNone;
}

// The result at (row, column) of a tile.
template <typename O>
inline O finish(float product, EpilogueTile<O> tile, int row, int column, constant FusedGemmParams& p) {
  float value = p.alpha * product;
  if (has_c) {
    value = metal::fma(p.beta, float(tile.c[addend_offset(p.c, row, column)]), value);
  }
  value = activated(value, p.activation);
  if (has_residual) {
    value += float(tile.residual[addend_offset(p.residual, row, column)]);
  }
  return O(value);
}

}  // namespace mlx_gemm
