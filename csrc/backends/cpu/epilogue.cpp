#include "csrc/backends/cpu/epilogue.h"

#include <cmath>
#include <numbers>

namespace mlx_gemm {
namespace {

float activated(float x, Activation activation) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x > 0.0f || std::isnan(x) ? x : 0.0f;
    case Activation::gelu:
      return 0.5f * x * (1.0f + std::erf(x / std::numbers::sqrt2_v<float>));
    case Activation::gelu_tanh: {
      constexpr float kScale = 0.7978845608f;  // sqrt(2 / pi)
      return 0.5f * x * (1.0f + std::tanh(kScale * (x + 0.044715f * x * x * x)));
    }
    case Activation::silu:
      return x / (1.0f + std::exp(-x));
  }
  return x;
}

void scale(float* d, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) {
    d[i] *= factor;
  }
}

void add_scaled(float* d, int64_t count, const float* x, int64_t stride, float factor) {
  for (int64_t i = 0; i < count; ++i) {
    d[i] += factor * x[i * stride];
  }
}

void activate(float* d, int64_t count, Activation activation) {
  for (int64_t i = 0; i < count; ++i) {
    d[i] = activated(d[i], activation);
  }
}

// Of the first element of row `row` of an addend.
int64_t row_offset(int64_t row, const std::vector<int>& shape, const std::vector<int64_t>& strides) {
  int64_t offset = 0;
  for (int dim = static_cast<int>(shape.size()) - 2; dim >= 0; --dim) {
    offset += row % shape[dim] * strides[dim];
    row /= shape[dim];
  }
  return offset;
}

}  // namespace

void CpuEpilogue::apply(float* d, float alpha) const {
  const int64_t columns = shape.back();
  int64_t rows = 1;
  for (size_t dim = 0; dim + 1 < shape.size(); ++dim) {
    rows *= shape[dim];
  }
  for (int64_t row = 0; row < rows; ++row, d += columns) {
    if (alpha != 1.0f) {
      scale(d, columns, alpha);
    }
    if (epilogue.has_c) {
      add_scaled(d, columns, c.data + row_offset(row, shape, c.strides), c.strides.back(), epilogue.beta);
    }
    if (epilogue.activation != Activation::none) {
      activate(d, columns, epilogue.activation);
    }
    if (epilogue.has_residual) {
      add_scaled(d, columns, residual.data + row_offset(row, shape, residual.strides), residual.strides.back(), 1.0f);
    }
  }
}

}  // namespace mlx_gemm
