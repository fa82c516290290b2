// Scalar and vector types of Metal.
#pragma once

#include "metal_host/scalar.h"
#include "metal_host/vector.h"

namespace METAL_HOST_MSL {

// The runtime's tag for an element type.
template <class T>
constexpr metal_host::Element element_tag() {
  if constexpr (std::is_same_v<T, float>) {
    return metal_host::Element::float32;
  } else if constexpr (std::is_same_v<T, half>) {
    return metal_host::Element::float16;
  } else {
    static_assert(std::is_same_v<T, bfloat>, "matrix elements are float, half or bfloat");
    return metal_host::Element::bfloat16;
  }
}

}  // namespace METAL_HOST_MSL
