#include "csrc/backends/cpu/strided_copy.h"

#include <span>

#include "csrc/counters.h"

namespace mlx_gemm {
namespace {

// Returns the end of what it wrote.
template <class T>
T* copy(const T* from, std::span<const int> shape, std::span<const int64_t> strides, T* to) {
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

template <class T>
void copy_as(const Elements& from, const Strided& layout, void* to) {
  copy<T>(static_cast<const T*>(from.data), layout.shape, layout.strides, static_cast<T*>(to));
}

}  // namespace

void copy_row_contiguous(const Elements& from, const Strided& layout, void* to) {
  ++counters().copies;
  switch (from.bytes) {
    case 2:
      return copy_as<uint16_t>(from, layout, to);
    case 4:
      return copy_as<uint32_t>(from, layout, to);
    default:
      return copy_as<uint64_t>(from, layout, to);
  }
}

}  // namespace mlx_gemm
