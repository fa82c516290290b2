// <metal_simdgroup>: what the lanes of a SIMD group tell each other.
#pragma once

#include "metal_host/type_traits.h"

namespace METAL_HOST_MSL {

constexpr ushort kSimdWidth = 32;

inline ushort __metal_get_thread_index_in_simdgroup(ushort) { return ushort(metal_host::lane_index()); }
inline ushort __metal_get_simdgroup_size(ushort) { return kSimdWidth; }

namespace metal {

namespace simd_detail {

template <class T>
constexpr bool is_scalar = is_arithmetic_v<T> && sizeof(T) <= 4 && !is_same_v<T, bfloat>;
template <class T>
constexpr bool is_data = is_scalar<T>;
template <class T, int N>
constexpr bool is_data<vec<T, N>> = is_scalar<T> && N <= 4;

// Types that lanes exchange: of at most 32 bits, and vectors of these. Kernels make do with others by themselves.
template <class T>
concept Data = is_data<T>;

// What every lane brought to one call. Lanes that have left the kernel show memory that nobody has written.
template <class T>
struct Values {
  T of[kSimdWidth];
  uint lane = metal_host::lane_index();
  uint32_t active;

  Values(const T& own, Site site) : active(metal_host::gather_lanes(&own, sizeof(T), of, site)) {}
  bool has(uint lane) const { return active >> lane & 1; }
};

// The value of a lane; of the calling one where there is no such lane.
template <Data T>
T from_lane(const T& own, uint lane, Site site) {
  const Values<T> values(own, site);
  return lane < kSimdWidth ? values.of[lane] : own;
}

// Combines the values of the active lanes in [first, last), in lane order.
template <class T, class Combine>
T reduce(const Values<T>& values, uint last, T result, Combine combine) {
  for (uint lane = 0; lane < last; ++lane) {
    if (values.has(lane)) {
      result = T(combine(result, values.of[lane]));
    }
  }
  return result;
}

// Of all active lanes, starting with one of their values.
template <class T, class Combine>
T reduce_all(const T& own, Combine combine, Site site) {
  const Values<T> values(own, site);
  uint first = 0;
  while (!values.has(first)) {
    ++first;
  }
  T result = values.of[first];
  for (uint lane = first + 1; lane < kSimdWidth; ++lane) {
    if (values.has(lane)) {
      result = T(combine(result, values.of[lane]));
    }
  }
  return result;
}

inline constexpr auto add = [](auto a, auto b) { return a + b; };
inline constexpr auto multiply = [](auto a, auto b) { return a * b; };

}  // namespace simd_detail

// ---- Values of other lanes ----

template <simd_detail::Data T>
T simd_shuffle(T data, ushort lane, Site site = Site::current()) {
  return simd_detail::from_lane(data, lane, site);
}
template <simd_detail::Data T>
T simd_broadcast(T data, ushort lane, Site site = Site::current()) {
  return simd_detail::from_lane(data, lane, site);
}
template <simd_detail::Data T>
T simd_broadcast_first(T data, Site site = Site::current()) {
  const simd_detail::Values<T> values(data, site);
  return values.of[std::countr_zero(values.active)];
}
template <simd_detail::Data T>
T simd_shuffle_xor(T data, ushort mask, Site site = Site::current()) {
  return simd_detail::from_lane(data, metal_host::lane_index() ^ mask, site);
}
template <simd_detail::Data T>
T simd_shuffle_down(T data, ushort delta, Site site = Site::current()) {
  return simd_detail::from_lane(data, metal_host::lane_index() + delta, site);
}
template <simd_detail::Data T>
T simd_shuffle_up(T data, ushort delta, Site site = Site::current()) {
  return simd_detail::from_lane(data, metal_host::lane_index() - delta, site);
}
template <simd_detail::Data T>
T simd_shuffle_rotate_down(T data, ushort delta, Site site = Site::current()) {
  return simd_detail::from_lane(data, (metal_host::lane_index() + delta) % kSimdWidth, site);
}
template <simd_detail::Data T>
T simd_shuffle_rotate_up(T data, ushort delta, Site site = Site::current()) {
  return simd_detail::from_lane(data, (metal_host::lane_index() - delta) % kSimdWidth, site);
}

// Lanes of each group of `modulo` lanes whose source lies outside the group get `filling` of that many lanes around.
template <simd_detail::Data T>
T simd_shuffle_and_fill_down(T data, T filling, ushort delta, ushort modulo = kSimdWidth, Site site = Site::current()) {
  const uint lane = metal_host::lane_index();
  const simd_detail::Values<T> values(data, site);
  const simd_detail::Values<T> fillings(filling, site);
  const uint source = lane % modulo + delta;
  const uint group = lane / modulo * modulo;
  return source < modulo ? values.of[group + source] : fillings.of[group + source % modulo];
}
template <simd_detail::Data T>
T simd_shuffle_and_fill_up(T data, T filling, ushort delta, ushort modulo = kSimdWidth, Site site = Site::current()) {
  const uint lane = metal_host::lane_index();
  const simd_detail::Values<T> values(data, site);
  const simd_detail::Values<T> fillings(filling, site);
  const uint position = lane % modulo;
  const uint group = lane / modulo * modulo;
  return position >= delta ? values.of[lane - delta] : fillings.of[group + (position + modulo - delta) % modulo];
}

// ---- Reductions and prefixes ----

template <simd_detail::Data T>
T simd_sum(T data, Site site = Site::current()) {
  return simd_detail::reduce_all(data, simd_detail::add, site);
}
template <simd_detail::Data T>
T simd_product(T data, Site site = Site::current()) {
  return simd_detail::reduce_all(data, simd_detail::multiply, site);
}
template <simd_detail::Data T>
T simd_min(T data, Site site = Site::current()) {
  return simd_detail::reduce_all(data, [](T a, T b) { return b < a ? b : a; }, site);
}
template <simd_detail::Data T>
T simd_max(T data, Site site = Site::current()) {
  return simd_detail::reduce_all(data, [](T a, T b) { return a < b ? b : a; }, site);
}
template <simd_detail::Data T>
  requires is_integral_v<T>
T simd_and(T data, Site site = Site::current()) {
  return simd_detail::reduce_all(data, [](T a, T b) { return a & b; }, site);
}
template <simd_detail::Data T>
  requires is_integral_v<T>
T simd_or(T data, Site site = Site::current()) {
  return simd_detail::reduce_all(data, [](T a, T b) { return a | b; }, site);
}
template <simd_detail::Data T>
  requires is_integral_v<T>
T simd_xor(T data, Site site = Site::current()) {
  return simd_detail::reduce_all(data, [](T a, T b) { return a ^ b; }, site);
}
template <simd_detail::Data T>
T simd_prefix_exclusive_sum(T data, Site site = Site::current()) {
  const simd_detail::Values<T> values(data, site);
  return simd_detail::reduce(values, values.lane, T(0), simd_detail::add);
}
template <simd_detail::Data T>
T simd_prefix_inclusive_sum(T data, Site site = Site::current()) {
  const simd_detail::Values<T> values(data, site);
  return simd_detail::reduce(values, values.lane + 1, T(0), simd_detail::add);
}
template <simd_detail::Data T>
T simd_prefix_exclusive_product(T data, Site site = Site::current()) {
  const simd_detail::Values<T> values(data, site);
  return simd_detail::reduce(values, values.lane, T(1), simd_detail::multiply);
}
template <simd_detail::Data T>
T simd_prefix_inclusive_product(T data, Site site = Site::current()) {
  const simd_detail::Values<T> values(data, site);
  return simd_detail::reduce(values, values.lane + 1, T(1), simd_detail::multiply);
}

}  // namespace metal

// The compiler's builtins under these functions, which kernels wrap for types of their own.
#define METAL_HOST_SIMD_BUILTIN(NAME)           \
  template <class... Arguments>                 \
  auto __metal_##NAME(Arguments... arguments) { \
    return metal::NAME(arguments...);           \
  }
METAL_HOST_SIMD_BUILTIN(simd_broadcast)
METAL_HOST_SIMD_BUILTIN(simd_shuffle)
METAL_HOST_SIMD_BUILTIN(simd_shuffle_xor)
METAL_HOST_SIMD_BUILTIN(simd_shuffle_up)
METAL_HOST_SIMD_BUILTIN(simd_shuffle_down)
METAL_HOST_SIMD_BUILTIN(simd_shuffle_rotate_up)
METAL_HOST_SIMD_BUILTIN(simd_shuffle_rotate_down)
METAL_HOST_SIMD_BUILTIN(simd_shuffle_and_fill_up)
METAL_HOST_SIMD_BUILTIN(simd_shuffle_and_fill_down)
METAL_HOST_SIMD_BUILTIN(simd_sum)
METAL_HOST_SIMD_BUILTIN(simd_product)
METAL_HOST_SIMD_BUILTIN(simd_min)
METAL_HOST_SIMD_BUILTIN(simd_max)
METAL_HOST_SIMD_BUILTIN(simd_prefix_exclusive_sum)
METAL_HOST_SIMD_BUILTIN(simd_prefix_inclusive_sum)
METAL_HOST_SIMD_BUILTIN(simd_prefix_exclusive_product)
METAL_HOST_SIMD_BUILTIN(simd_prefix_inclusive_product)
#undef METAL_HOST_SIMD_BUILTIN
inline int __metal_simd_xor(int data) { return metal::simd_xor(data); }

}  // namespace METAL_HOST_MSL
