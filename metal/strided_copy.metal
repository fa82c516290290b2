// strided_copy: an array of any strides, copied to row-major order.
//
//   to[row, x] = from[origin + offset(row) + x column_stride]      offset(row) = sum over the row's axes of index
//   stride
//
//   grid              ceil(columns/32) x ceil(rows/8) threadgroups of 32x8 threads
//   thread            one element, moved as bits
//   threadgroup bytes 0
//   requested bytes   one read and one write of every element
//
// Strides may be negative or 0. Offsets are 64-bit; only the position in the grid is not, so a launch starts at
// first_row. The number of axes is a function constant: of a matrix no index is divided.
#include <metal_stdlib>

#include "metal/common/instantiate.h"
#include "metal/shared/params.h"

using namespace metal;
using namespace mlx_gemm;

constant int row_axes [[function_constant(kCopyRowAxes)]];

template <typename T>
[[kernel, max_total_threads_per_threadgroup(kCopyThreadsX* kCopyThreadsY)]] void strided_copy(
    device const T* from [[buffer(kCopyFrom)]],
    device T* to [[buffer(kCopyTo)]],
    constant CopyParams& p [[buffer(kCopyParams)]],
    uint2 position [[thread_position_in_grid]]) {
  const int64_t column = position.x;
  const int64_t row = p.first_row + position.y;
  if (column >= p.columns || row >= p.rows) {
    return;
  }
  int64_t source = p.origin + column * p.column_stride;
  int64_t rest = row;
  for (int axis = row_axes - 1; axis > 0; --axis) {
    source += rest % p.row_lengths[axis] * p.row_strides[axis];
    rest /= p.row_lengths[axis];
  }
  source += rest * p.row_strides[0];
  to[row * p.columns + column] = from[source];
}

GEMM_INSTANTIATE(strided_copy_16, strided_copy<ushort>)
GEMM_INSTANTIATE(strided_copy_32, strided_copy<uint>)
GEMM_INSTANTIATE(strided_copy_64, strided_copy<ulong>)
