#include "csrc/backends/cpu/epilogue.h"

#include <algorithm>
#include <cstring>

#include "csrc/backends/cpu/workspace.h"

namespace mlx_gemm {
namespace {

// Elements from an addend's first one to those of row `row` of the product.
int64_t row_offset(int64_t row, const std::vector<int>& shape, const std::vector<int64_t>& strides) {
  int64_t offset = 0;
  for (int dim = static_cast<int>(shape.size()) - 2; dim >= 0; --dim) {
    offset += row % shape[dim] * strides[dim];
    row /= shape[dim];
  }
  return offset;
}

using Widen = void (*)(const uint16_t* from, int64_t count, float* to);

Widen widen_of(Dtype dtype) { return dtype == Dtype::float16 ? row_kernels().widen_half : row_kernels().widen_bfloat; }

void add_half(const FloatRows& x, const CpuAddend& addend, int64_t offset, float factor) {
  const Widen widen = widen_of(addend.dtype);
  const int64_t row_stride = addend.strides.end()[-2];
  const int64_t column_stride = addend.strides.end()[-1];
  const int64_t distinct = column_stride == 0 ? 1 : x.columns;
  float* wide = float_workspace(Workspace::addend, distinct);
  for (int64_t row = 0; row < x.rows; ++row) {
    if (row == 0 || row_stride != 0) {
      const uint16_t* from = static_cast<const uint16_t*>(addend.data) + offset + row * row_stride;
      if (column_stride == 1) {
        widen(from, distinct, wide);
      } else {
        for (int64_t i = 0; i < distinct; ++i) {
          widen(from + i * column_stride, 1, wide + i);
        }
      }
    }
    row_kernels().add({x.data + row * x.ld, x.ld, 1, x.columns},
                      {wide, 0, static_cast<int64_t>(column_stride != 0), factor});
  }
}

// The rows of `x` are of one matrix of the product, the first of them row `row` of all.
void add(const FloatRows& x, const CpuAddend& addend, const std::vector<int>& shape, const Region& region,
         float factor) {
  const int64_t row_stride = addend.strides.end()[-2];
  const int64_t column_stride = addend.strides.end()[-1];
  const int64_t offset = row_offset(region.row, shape, addend.strides) + region.column * column_stride;
  if (addend.dtype == Dtype::float32) {
    row_kernels().add(x, {static_cast<const float*>(addend.data) + offset, row_stride, column_stride, factor});
  } else {
    add_half(x, addend, offset, factor);
  }
}

}  // namespace

void* CpuEpilogue::at(int64_t row, int64_t column) const {
  return static_cast<std::byte*>(d) + (row * shape.back() + column) * bytes_per_element(dtype);
}

void CpuEpilogue::store(const Region& region, const FloatRows& x) const {
  const int64_t ld = shape.back();
  void* to = at(region.row, region.column);
  switch (dtype) {
    case Dtype::float16:
      row_kernels().store_half(x, static_cast<uint16_t*>(to), ld);
      break;
    case Dtype::bfloat16:
      row_kernels().store_bfloat(x, static_cast<uint16_t*>(to), ld);
      break;
    default:
      for (int64_t row = 0; x.data != to && row < x.rows; ++row) {
        std::memcpy(static_cast<float*>(to) + row * ld, x.data + row * x.ld,
                    static_cast<size_t>(x.columns) * sizeof(float));
      }
  }
}

void CpuEpilogue::finish(const Region& region, float* data, int64_t ld, float alpha) const {
  const RowKernels& kernels = row_kernels();
  const int64_t matrix_rows = shape.end()[-2];
  for (int64_t done = 0; done < region.rows;) {
    const int64_t row = region.row + done;
    const Region part{row, std::min(region.rows - done, matrix_rows - row % matrix_rows), region.column,
                      region.columns};
    const FloatRows x{data + done * ld, ld, part.rows, part.columns};
    if (alpha != 1.0f) {
      kernels.scale(x, alpha);
    }
    if (epilogue.has_c) {
      add(x, c, shape, part, epilogue.beta);
    }
    kernels.activate(x, epilogue.activation);
    if (epilogue.has_residual) {
      add(x, residual, shape, part, 1.0f);
    }
    store(part, x);
    done += part.rows;
  }
}

}  // namespace mlx_gemm
