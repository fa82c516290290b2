// metal::numeric_limits.
#pragma once

#include <limits>

#include "metal_host/types.h"

namespace METAL_HOST_MSL::metal {

template <class T>
struct numeric_limits : std::numeric_limits<T> {};

namespace limits_detail {

template <class T>
constexpr T from_bits(uint16_t bits) {
  T value{};
  value.bits = bits;
  return value;
}

// Of a 16-bit floating-point type with `FractionBits` stored bits of fraction.
template <class T, int FractionBits>
struct short_limits {
  static constexpr bool is_specialized = true;
  static constexpr bool is_signed = true;
  static constexpr bool is_integer = false;
  static constexpr bool is_exact = false;
  static constexpr bool has_infinity = true;
  static constexpr bool has_quiet_NaN = true;
  static constexpr int digits = FractionBits + 1;
  static constexpr int radix = 2;
  static constexpr int max_exponent = 1 << (14 - FractionBits);
  static constexpr int min_exponent = 3 - max_exponent;

  static constexpr T infinity() { return from_bits<T>(kInfinity); }
  static constexpr T max() { return from_bits<T>(kInfinity - 1); }
  static constexpr T lowest() { return from_bits<T>(kSign | (kInfinity - 1)); }
  static constexpr T min() { return from_bits<T>(kUnit); }
  static constexpr T denorm_min() { return from_bits<T>(1); }
  static constexpr T quiet_NaN() { return from_bits<T>(kInfinity | kUnit / 2); }
  static constexpr T epsilon() { return T(1.0f / kUnit); }

 private:
  static constexpr uint16_t kUnit = 1 << FractionBits;  // of the exponent
  static constexpr uint16_t kSign = 0x8000;
  static constexpr uint16_t kInfinity = 0x7fff & ~(kUnit - 1);
};

}  // namespace limits_detail

template <>
struct numeric_limits<half> : limits_detail::short_limits<half, 10> {};
template <>
struct numeric_limits<bfloat> : limits_detail::short_limits<bfloat, 7> {};

}  // namespace METAL_HOST_MSL::metal
