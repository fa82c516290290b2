// <metal_uniform>: a value that is the same in all threads of a SIMD group.
#pragma once

#include "metal_host/config.h"

namespace METAL_HOST_MSL::metal {

template <class T>
struct uniform {
  T value;
  constexpr uniform(T value) : value(value) {}
  constexpr operator T() const { return value; }
};

template <class T>
constexpr uniform<T> make_uniform(T value) {
  return value;
}

}  // namespace METAL_HOST_MSL::metal
