// <metal_math>, <metal_common> and <metal_relational>.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "metal_host/type_traits.h"

namespace METAL_HOST_MSL {

// The compiler's builtins under the library's functions take a flag for fast math. The host has one accuracy.
constexpr bool __METAL_MAYBE_FAST_MATH__ = false;
constexpr bool __METAL_FAST_MATH__ = true;
constexpr bool __METAL_PRECISE_MATH__ = false;

// name, value for float arguments x, y, z
#define METAL_HOST_UNARY_MATH(F)                        \
  F(acos, std::acos(x))                                 \
  F(acosh, std::acosh(x))                               \
  F(asin, std::asin(x))                                 \
  F(asinh, std::asinh(x))                               \
  F(atan, std::atan(x))                                 \
  F(atanh, std::atanh(x))                               \
  F(ceil, std::ceil(x))                                 \
  F(cos, std::cos(x))                                   \
  F(cosh, std::cosh(x))                                 \
  F(cospi, std::cos(x* std::numbers::pi_v<float>))      \
  F(exp, std::exp(x))                                   \
  F(exp10, std::pow(10.0f, x))                          \
  F(exp2, std::exp2(x))                                 \
  F(fabs, std::fabs(x))                                 \
  F(floor, std::floor(x))                               \
  F(fract, std::min(x - std::floor(x), 0x1.fffffep-1f)) \
  F(log, std::log(x))                                   \
  F(log10, std::log10(x))                               \
  F(log2, std::log2(x))                                 \
  F(rint, std::nearbyint(x))                            \
  F(round, std::round(x))                               \
  F(rsqrt, 1.0f / std::sqrt(x))                         \
  F(sin, std::sin(x))                                   \
  F(sinh, std::sinh(x))                                 \
  F(sinpi, std::sin(x* std::numbers::pi_v<float>))      \
  F(sqrt, std::sqrt(x))                                 \
  F(tan, std::tan(x))                                   \
  F(tanh, std::tanh(x))                                 \
  F(tanpi, std::tan(x* std::numbers::pi_v<float>))      \
  F(trunc, std::trunc(x))

#define METAL_HOST_BINARY_MATH(F) \
  F(atan2, std::atan2(x, y))      \
  F(divide, x / y)                \
  F(fdim, std::fdim(x, y))        \
  F(fmax, std::fmax(x, y))        \
  F(fmin, std::fmin(x, y))        \
  F(fmod, std::fmod(x, y))        \
  F(pow, std::pow(x, y))          \
  F(powr, std::pow(x, y))

#define METAL_HOST_TERNARY_MATH(F)                                       \
  F(fma, std::fma(x, y, z))                                              \
  F(fmax3, std::fmax(x, std::fmax(y, z)))                                \
  F(fmedian3, std::fmax(std::fmin(x, y), std::fmin(std::fmax(x, y), z))) \
  F(fmin3, std::fmin(x, std::fmin(y, z)))

#define METAL_HOST_UNARY_BUILTIN(NAME, ...) \
  inline float __metal_##NAME(float x, bool) { return __VA_ARGS__; }
#define METAL_HOST_BINARY_BUILTIN(NAME, ...) \
  inline float __metal_##NAME(float x, float y, bool) { return __VA_ARGS__; }
#define METAL_HOST_TERNARY_BUILTIN(NAME, ...) \
  inline float __metal_##NAME(float x, float y, float z, bool) { return __VA_ARGS__; }
METAL_HOST_UNARY_MATH(METAL_HOST_UNARY_BUILTIN)
METAL_HOST_BINARY_MATH(METAL_HOST_BINARY_BUILTIN)
METAL_HOST_TERNARY_MATH(METAL_HOST_TERNARY_BUILTIN)
#undef METAL_HOST_UNARY_BUILTIN
#undef METAL_HOST_BINARY_BUILTIN
#undef METAL_HOST_TERNARY_BUILTIN

// Of other forms, or the same with fast math.
inline float __metal_fma(float x, float y, float z) { return std::fma(x, y, z); }
inline float __metal_ldexp(float x, int exponent, bool) { return std::ldexp(x, exponent); }
inline float __metal_frexp(float x, int* exponent) { return std::frexp(x, exponent); }
inline float __metal_nextafter(float x, float y) { return std::nextafter(x, y); }

#define METAL_HOST_UNARY_FUNCTION(NAME, ...)                      \
  inline float NAME(float x) { return __metal_##NAME(x, false); } \
  inline half NAME(half x) { return __metal_##NAME(x, false); }
#define METAL_HOST_BINARY_FUNCTION(NAME, ...)                                 \
  inline float NAME(float x, float y) { return __metal_##NAME(x, y, false); } \
  inline half NAME(half x, half y) { return __metal_##NAME(x, y, false); }
#define METAL_HOST_TERNARY_FUNCTION(NAME, ...)                                            \
  inline float NAME(float x, float y, float z) { return __metal_##NAME(x, y, z, false); } \
  inline half NAME(half x, half y, half z) { return __metal_##NAME(x, y, z, false); }
#define METAL_HOST_MATH_FUNCTIONS                    \
  METAL_HOST_UNARY_MATH(METAL_HOST_UNARY_FUNCTION)   \
  METAL_HOST_BINARY_MATH(METAL_HOST_BINARY_FUNCTION) \
  METAL_HOST_TERNARY_MATH(METAL_HOST_TERNARY_FUNCTION)

namespace metal {

METAL_HOST_MATH_FUNCTIONS

namespace precise {
METAL_HOST_MATH_FUNCTIONS
}
namespace fast {
METAL_HOST_MATH_FUNCTIONS
}

inline float ldexp(float x, int exponent) { return std::ldexp(x, exponent); }
inline float frexp(float x, int& exponent) { return std::frexp(x, &exponent); }
inline float nextafter(float x, float y) { return std::nextafter(x, y); }

// Both arguments have one type: as with Metal's overloads, a mix of two is ambiguous.
template <class T>
  requires is_arithmetic_v<T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
  requires is_arithmetic_v<T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
  requires is_arithmetic_v<T>
constexpr T clamp(T x, T low, T high) {
  return min(max(x, low), high);
}
template <class T>
  requires is_arithmetic_v<T>
constexpr T abs(T x) {
  return x < T(0) ? T(-x) : x;
}

constexpr bool isnan(float x) { return x != x; }
constexpr bool isinf(float x) { return x - x != 0.0f && x == x; }
constexpr bool isfinite(float x) { return x - x == 0.0f; }

template <class T>
constexpr T select(T if_false, T if_true, bool condition) {
  return condition ? if_true : if_false;
}

}  // namespace metal

#undef METAL_HOST_MATH_FUNCTIONS
#undef METAL_HOST_UNARY_FUNCTION
#undef METAL_HOST_BINARY_FUNCTION
#undef METAL_HOST_TERNARY_FUNCTION
#undef METAL_HOST_UNARY_MATH
#undef METAL_HOST_BINARY_MATH
#undef METAL_HOST_TERNARY_MATH

}  // namespace METAL_HOST_MSL
