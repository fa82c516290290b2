// 8x8 fragments of SIMD-group matrices, filled and emptied through the lanes that hold their elements.
#pragma once

#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "metal/common/epilogue.h"
#include "metal/shared/params.h"

namespace mlx_gemm {

// Of the first of the two elements that a lane holds; the second is in the next column. The map is not in Apple's
// documents, but has been the same from M1 to M5.
struct FragmentPosition {
  int row;
  int column;
};

METAL_FUNC FragmentPosition fragment_position(uint lane) {
  const int quad = int(lane) / 4;
  return {(quad & 4) + int(lane) / 2 % 4, (quad & 2) * 2 + int(lane) % 2 * 2};
}

// Of a matrix in memory, one of them 1: transposed it lies column after column.
struct FragmentStrides {
  int row;
  int column;
};

// Converts on the way: products of half types are exact in float.
template <typename T>
METAL_FUNC void load_fragment(
    thread metal::simdgroup_float8x8& fragment,
    threadgroup const T* block,
    FragmentStrides strides,
    FragmentPosition at) {
  threadgroup const T* first = block + at.row * strides.row + at.column * strides.column;
  fragment.thread_elements()[0] = float(first[0]);
  fragment.thread_elements()[1] = float(first[strides.column]);
}

// From device memory. `rows` and `columns` count what of the matrix is left from the fragment on; the rest is zero.
template <typename T>
METAL_FUNC void load_fragment(
    thread metal::simdgroup_float8x8& fragment,
    device const T* matrix,
    FragmentStrides strides,
    FragmentPosition at,
    int rows,
    int columns) {
#pragma clang loop unroll(full)
  for (int e = 0; e < 2; ++e) {
    const int column = at.column + e;
    const size_t offset = size_t(at.row) * size_t(strides.row) + size_t(column) * size_t(strides.column);
    fragment.thread_elements()[e] = at.row < rows && column < columns ? float(matrix[offset]) : 0.0f;
  }
}

// acc += a b, for the FM x FN fragments of a SIMD group.
template <int FM, int FN>
METAL_FUNC void multiply_fragments(
    thread metal::simdgroup_float8x8* acc,
    thread const metal::simdgroup_float8x8* a,
    thread const metal::simdgroup_float8x8* b) {
#pragma clang loop unroll(full)
  for (int i = 0; i < FM; ++i) {
#pragma clang loop unroll(full)
    for (int j = 0; j < FN; ++j) {
      metal::simdgroup_multiply_accumulate(acc[i * FN + j], a[i], b[j], acc[i * FN + j]);
    }
  }
}

// Writes a SIMD group's fragments, whose first element is (row0, column0) of a tile with `rows` x `columns` inside D.
template <typename O, int FM, int FN>
METAL_FUNC void store_fragments(
    thread metal::simdgroup_float8x8* acc,
    device O* d,
    EpilogueTile<O> tile,
    FragmentPosition first,
    int rows,
    int columns,
    constant FusedGemmParams& p) {
#pragma clang loop unroll(full)
  for (int i = 0; i < FM; ++i) {
#pragma clang loop unroll(full)
    for (int j = 0; j < FN; ++j) {
#pragma clang loop unroll(full)
      for (int e = 0; e < 2; ++e) {
        const int row = first.row + 8 * i;
        const int column = first.column + 8 * j + e;
        if (row < rows && column < columns) {
          const float product = acc[i * FN + j].thread_elements()[e];
          d[size_t(row) * size_t(p.N) + column] = finish(product, tile, row, column, p);
        }
      }
    }
  }
}

}  // namespace mlx_gemm
