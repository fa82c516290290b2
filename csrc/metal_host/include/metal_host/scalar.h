// Scalar types of Metal.
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

// Types with an assignment of their own: GCC's instrumentation misses the store of a struct that a function returns.

// Integers and float convert to half implicitly.
struct half {
  uint16_t bits;

  half() = default;
  half(const half&) = default;
  constexpr half& operator=(const half& other) {
    bits = other.bits;
    return *this;
  }
  constexpr half(float value) : bits(metal_host::half_bits(value)) {}
  constexpr operator float() const { return metal_host::float_from_half_bits(bits); }
};

// Integers convert to bfloat implicitly, float and half do not.
struct bfloat {
  uint16_t bits;

  bfloat() = default;
  bfloat(const bfloat&) = default;
  constexpr bfloat& operator=(const bfloat& other) {
    bits = other.bits;
    return *this;
  }
  constexpr explicit bfloat(float value) : bits(metal_host::bfloat_bits(value)) {}
  template <class Integer>
    requires std::is_integral_v<Integer>
  constexpr bfloat(Integer value) : bfloat(float(value)) {}
  constexpr operator float() const { return metal_host::float_from_bfloat_bits(bits); }
};

namespace short_float {

template <class T>
constexpr bool is_short = std::is_same_v<T, half> || std::is_same_v<T, bfloat>;

// With itself and with integers a 16-bit type stays what it is. With float, and with the other one, both become float:
// that is left to their conversions and the operators of float.
template <class A, class B>
concept Operands =
    (is_short<A> && (std::is_same_v<A, B> || std::is_integral_v<B>)) || (std::is_integral_v<A> && is_short<B>);

template <class A, class B>
using Result = std::conditional_t<is_short<A>, A, B>;

}  // namespace short_float

// Rounded once per operation, as if computed in float: float has bits enough for that to be exact.
template <class A, class B>
  requires short_float::Operands<A, B>
constexpr auto operator+(A a, B b) {
  return short_float::Result<A, B>(float(a) + float(b));
}
template <class A, class B>
  requires short_float::Operands<A, B>
constexpr auto operator-(A a, B b) {
  return short_float::Result<A, B>(float(a) - float(b));
}
template <class A, class B>
  requires short_float::Operands<A, B>
constexpr auto operator*(A a, B b) {
  return short_float::Result<A, B>(float(a) * float(b));
}
template <class A, class B>
  requires short_float::Operands<A, B>
constexpr auto operator/(A a, B b) {
  return short_float::Result<A, B>(float(a) / float(b));
}
template <class T>
  requires short_float::is_short<T>
constexpr T operator-(T x) {
  return T(-float(x));
}

// As the assignment of the result would be: float does not go back into a bfloat.
template <class T, class U>
  requires short_float::is_short<T>
constexpr T& operator+=(T& a, U b) {
  return a = a + b;
}
template <class T, class U>
  requires short_float::is_short<T>
constexpr T& operator-=(T& a, U b) {
  return a = a - b;
}
template <class T, class U>
  requires short_float::is_short<T>
constexpr T& operator*=(T& a, U b) {
  return a = a * b;
}
template <class T, class U>
  requires short_float::is_short<T>
constexpr T& operator/=(T& a, U b) {
  return a = a / b;
}

// The bits of a value, read as another type of the same size.
template <class To, class From>
inline To as_type(From value) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
  To result;
  __builtin_memcpy(&result, &value, sizeof(To));
  return result;
}

}  // namespace METAL_HOST_MSL
