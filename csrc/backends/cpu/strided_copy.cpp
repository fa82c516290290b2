#include "csrc/backends/cpu/strided_copy.h"

#include <span>

#include "csrc/counters.h"

namespace mlx_gemm {
namespace {

// Returns the end of what it wrote.
float* copy(const float* from, std::span<const int> shape, std::span<const int64_t> strides, float* to) {
  const int64_t stride = strides.front();
  if (shape.size() == 1) {
    for (int i = 0; i < shape.front(); ++i) {
      *to++ = from[i * stride];
    }
    return to;
  }
  for (int i = 0; i < shape.front(); ++i) {
    to = copy(from + i * stride, shape.subspan(1), strides.subspan(1), to);
  }
  return to;
}

}  // namespace

void copy_row_contiguous(const float* from, const Strided& layout, float* to) {
  ++counters().copies;
  copy(from, {layout.shape.data(), layout.shape.size()}, {layout.strides.data(), layout.strides.size()}, to);
}

}  // namespace mlx_gemm
