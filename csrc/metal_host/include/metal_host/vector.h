// Vectors, packed vectors and arrays of Metal.
#pragma once

#include "metal_host/scalar.h"

namespace METAL_HOST_MSL {

namespace metal {

// Arithmetic exists for 2 to 4 elements; a vector of 8 is storage that shipping kernels keep fragments in.
template <class T, int N>
struct vec;

template <class T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  T x;
  T y;
  vec() = default;
  vec(const vec&) = default;
  constexpr vec& operator=(const vec& other) {
    x = other.x;
    y = other.y;
    return *this;
  }
  constexpr vec(T splat) : x(splat), y(splat) {}
  constexpr vec(T x, T y) : x(x), y(y) {}
  template <class U>
  constexpr explicit vec(const vec<U, 2>& other) : x(T(other.x)), y(T(other.y)) {}
  constexpr T& operator[](int i) { return i == 0 ? x : y; }
  constexpr const T& operator[](int i) const { return i == 0 ? x : y; }
};

// As large as four elements.
template <class T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  T x;
  T y;
  T z;
  vec() = default;
  vec(const vec&) = default;
  constexpr vec& operator=(const vec& other) {
    x = other.x;
    y = other.y;
    z = other.z;
    return *this;
  }
  constexpr vec(T splat) : x(splat), y(splat), z(splat) {}
  constexpr vec(T x, T y, T z) : x(x), y(y), z(z) {}
  template <class U>
  constexpr explicit vec(const vec<U, 3>& other) : x(T(other.x)), y(T(other.y)), z(T(other.z)) {}
  constexpr T& operator[](int i) { return i == 0 ? x : i == 1 ? y : z; }
  constexpr const T& operator[](int i) const { return i == 0 ? x : i == 1 ? y : z; }
};

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  T x;
  T y;
  T z;
  T w;
  vec() = default;
  vec(const vec&) = default;
  constexpr vec& operator=(const vec& other) {
    x = other.x;
    y = other.y;
    z = other.z;
    w = other.w;
    return *this;
  }
  constexpr vec(T splat) : x(splat), y(splat), z(splat), w(splat) {}
  constexpr vec(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
  template <class U>
  constexpr explicit vec(const vec<U, 4>& other) : x(T(other.x)), y(T(other.y)), z(T(other.z)), w(T(other.w)) {}
  constexpr T& operator[](int i) { return i < 2 ? (i == 0 ? x : y) : (i == 2 ? z : w); }
  constexpr const T& operator[](int i) const { return i < 2 ? (i == 0 ? x : y) : (i == 2 ? z : w); }
};

template <class T>
struct vec<T, 8> {
  T elements[8];
  vec() = default;
  constexpr vec(T splat) {
    for (T& element : elements) {
      element = splat;
    }
  }
  constexpr T& operator[](int i) { return elements[i]; }
  constexpr const T& operator[](int i) const { return elements[i]; }
};

namespace vector_detail {

template <class T, int N, class Operation>
constexpr vec<T, N> map(vec<T, N> a, const vec<T, N>& b, Operation operation) {
  for (int i = 0; i < N; ++i) {
    a[i] = T(operation(a[i], b[i]));
  }
  return a;
}

}  // namespace vector_detail

template <class T, int N>
constexpr vec<T, N> operator+(const vec<T, N>& a, const vec<T, N>& b) {
  return vector_detail::map(a, b, [](T x, T y) { return x + y; });
}
template <class T, int N>
constexpr vec<T, N> operator-(const vec<T, N>& a, const vec<T, N>& b) {
  return vector_detail::map(a, b, [](T x, T y) { return x - y; });
}
template <class T, int N>
constexpr vec<T, N> operator*(const vec<T, N>& a, const vec<T, N>& b) {
  return vector_detail::map(a, b, [](T x, T y) { return x * y; });
}
template <class T, int N>
constexpr vec<T, N> operator/(const vec<T, N>& a, const vec<T, N>& b) {
  return vector_detail::map(a, b, [](T x, T y) { return x / y; });
}
template <class T, int N>
constexpr vec<T, N> operator*(const vec<T, N>& a, std::type_identity_t<T> b) {
  return a * vec<T, N>(b);
}
template <class T, int N>
constexpr vec<T, N> operator*(std::type_identity_t<T> a, const vec<T, N>& b) {
  return vec<T, N>(a) * b;
}
template <class T, int N>
constexpr vec<T, N>& operator+=(vec<T, N>& a, const std::type_identity_t<vec<T, N>>& b) {
  return a = a + b;
}
template <class T, int N>
constexpr vec<T, N>& operator-=(vec<T, N>& a, const std::type_identity_t<vec<T, N>>& b) {
  return a = a - b;
}
template <class T, int N>
constexpr vec<T, N>& operator*=(vec<T, N>& a, const std::type_identity_t<vec<T, N>>& b) {
  return a = a * b;
}

template <class T, int N>
constexpr T dot(const vec<T, N>& a, const vec<T, N>& b) {
  T sum = a[0] * b[0];
  for (int i = 1; i < N; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

// A vector in memory that is aligned like its elements, and has no gap after the third.
template <class T, int N>
struct packed_vec {
  T elements[N];
  packed_vec() = default;
  packed_vec(const packed_vec&) = default;
  constexpr packed_vec& operator=(const packed_vec& other) {
    for (int i = 0; i < N; ++i) {
      elements[i] = other.elements[i];
    }
    return *this;
  }
  constexpr packed_vec(const vec<T, N>& value) {
    for (int i = 0; i < N; ++i) {
      elements[i] = value[i];
    }
  }
  constexpr operator vec<T, N>() const {
    vec<T, N> value(elements[0]);
    for (int i = 0; i < N; ++i) {
      value[i] = elements[i];
    }
    return value;
  }
  constexpr T& operator[](int i) { return elements[i]; }
  constexpr const T& operator[](int i) const { return elements[i]; }
};

template <class T, size_t N>
struct array {
  T values[N];
  constexpr T& operator[](size_t i) { return values[i]; }
  constexpr const T& operator[](size_t i) const { return values[i]; }
  static constexpr size_t size() { return N; }
};

}  // namespace metal

#define METAL_HOST_VECTORS(T)                    \
  using T##2 = metal::vec<T, 2>;                 \
  using T##3 = metal::vec<T, 3>;                 \
  using T##4 = metal::vec<T, 4>;                 \
  using packed_##T##2 = metal::packed_vec<T, 2>; \
  using packed_##T##3 = metal::packed_vec<T, 3>; \
  using packed_##T##4 = metal::packed_vec<T, 4>
METAL_HOST_VECTORS(bool);
METAL_HOST_VECTORS(char);
METAL_HOST_VECTORS(uchar);
METAL_HOST_VECTORS(short);
METAL_HOST_VECTORS(ushort);
METAL_HOST_VECTORS(int);
METAL_HOST_VECTORS(uint);
METAL_HOST_VECTORS(long);
METAL_HOST_VECTORS(ulong);
METAL_HOST_VECTORS(half);
METAL_HOST_VECTORS(bfloat);
METAL_HOST_VECTORS(float);
#undef METAL_HOST_VECTORS

}  // namespace METAL_HOST_MSL
