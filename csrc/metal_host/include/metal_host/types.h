// Scalar and vector types of Metal.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "csrc/metal_host/half.h"
#include "metal_host/config.h"

namespace METAL_HOST_MSL {

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;

// float -> half is implicit in Metal.
struct half {
  uint16_t bits;

  half() = default;
  constexpr half(float value) : bits(metal_host::half_bits(value)) {}
  constexpr operator float() const { return metal_host::float_from_half_bits(bits); }
};

// float -> bfloat is explicit in Metal.
struct bfloat {
  uint16_t bits;

  bfloat() = default;
  constexpr explicit bfloat(float value) : bits(metal_host::bfloat_bits(value)) {}
  constexpr operator float() const { return metal_host::float_from_bfloat_bits(bits); }
};

namespace metal {

template <class T, int N>
struct vec;

template <class T>
struct vec<T, 2> {
  T x;
  T y;
  vec() = default;
  constexpr vec(T splat) : x(splat), y(splat) {}
  constexpr vec(T x, T y) : x(x), y(y) {}
  constexpr T& operator[](int i) { return i == 0 ? x : y; }
  constexpr const T& operator[](int i) const { return i == 0 ? x : y; }
};

template <class T>
struct vec<T, 3> {
  T x;
  T y;
  T z;
  vec() = default;
  constexpr vec(T splat) : x(splat), y(splat), z(splat) {}
  constexpr vec(T x, T y, T z) : x(x), y(y), z(z) {}
  constexpr T& operator[](int i) { return i == 0 ? x : i == 1 ? y : z; }
  constexpr const T& operator[](int i) const { return i == 0 ? x : i == 1 ? y : z; }
};

template <class T, size_t N>
struct array {
  T values[N];
  constexpr T& operator[](size_t i) { return values[i]; }
  constexpr const T& operator[](size_t i) const { return values[i]; }
  static constexpr size_t size() { return N; }
};

}  // namespace metal

using uint2 = metal::vec<uint, 2>;
using uint3 = metal::vec<uint, 3>;
using ushort2 = metal::vec<ushort, 2>;
using ushort3 = metal::vec<ushort, 3>;
using ulong2 = metal::vec<ulong, 2>;

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
