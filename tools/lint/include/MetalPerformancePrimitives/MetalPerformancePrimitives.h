// TensorOps for the lint: matmul2d as of macOS 26.2, with its silent failures as rules. Reductions, and conversions
// between cooperative tensors, are left out.
#pragma once

#include <metal_cooperative_tensor>

namespace metal {

template <uint N>
struct execution_simdgroups {
  static_assert(N != 0, "a scope has at least one SIMD group");
  static constexpr constant uint static_size = N;
};
using execution_simdgroup = execution_simdgroups<1>;

template <uint N>
struct execution_threads {
  static_assert(N == 1, "only execution_threads<1> exists");
  static constexpr constant uint static_size = N;
};
using execution_thread = execution_threads<1>;

}  // namespace metal

namespace mpp::tensor_ops {

struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };

  int m, n, k;
  bool transpose_left, transpose_right;
  bool relaxed_precision;
  mode matmul_mode;

  constexpr matmul2d_descriptor(int m, int n, int k, bool transpose_left, bool transpose_right, bool relaxed_precision,
                                mode matmul_mode)
      : m(m),
        n(n),
        k(k),
        transpose_left(transpose_left),
        transpose_right(transpose_right),
        relaxed_precision(relaxed_precision),
        matmul_mode(matmul_mode) {}
  constexpr matmul2d_descriptor(int m, int n, int k = static_cast<int>(metal::dynamic_extent),
                                bool transpose_left = false, bool transpose_right = false,
                                bool relaxed_precision = false)
      METAL_LINT_RULE(true, "explicit-mode: whether the default mode reads the destination is documented both ways")
      : m(m),
        n(n),
        k(k),
        transpose_left(transpose_left),
        transpose_right(transpose_right),
        relaxed_precision(relaxed_precision),
        matmul_mode(mode::multiply) {}

  // C++17 has no template arguments of class type: the descriptor becomes 14 bits of m, 14 of n and 32 of k.
  constexpr operator ulong() const { return packed(m, n, k); }
  constexpr operator ulong() const constant { return packed(m, n, k); }

 private:
  static constexpr ulong packed(int m, int n, int k) { return ulong(m) | ulong(n) << 14 | ulong(uint(k)) << 28; }
};

namespace lint_detail {

using namespace metal;

constexpr int m_of(ulong descriptor) { return int(descriptor & 0x3fff); }
constexpr int n_of(ulong descriptor) { return int(descriptor >> 14 & 0x3fff); }
constexpr int k_of(ulong descriptor) { return int(uint(descriptor >> 28)); }

template <class T>
inline constexpr constant bool is_cooperative = false;
template <class E, class X, class Layout>
inline constexpr constant bool is_cooperative<cooperative_tensor<E, X, Layout>> = true;

// Tensors: rows lost below 16, a static k cut down to a multiple of 32 by macOS 26.0, both rejected by 26.4.
constexpr bool is_tensor_tile(int m, int n, int k) {
  return m > 0 && n > 0 && m % 16 == 0 && (n % 32 == 0 || (n % 16 == 0 && m % 32 == 0)) &&
         (k == -1 || (k > 0 && k % 32 == 0));
}

constexpr bool is_fragment(int extent) { return extent == 16 || extent == 32; }

// Cooperative inputs: each extent 16 or 32, not all 16.
constexpr bool is_fragment_tile(int m, int n, int k) {
  return is_fragment(m) && is_fragment(n) && is_fragment(k) && m + n + k > 3 * 16;
}

template <ulong Descriptor, class Scope, class Left, class Right>
constexpr bool is_tile() {
  constexpr int m = m_of(Descriptor), n = n_of(Descriptor), k = k_of(Descriptor);
  if (is_cooperative<Left> || is_cooperative<Right>) {
    return is_fragment_tile(m, n, k) && is_same_v<Scope, execution_simdgroup>;
  }
  return is_same_v<Scope, execution_thread> || is_tensor_tile(m, n, k);
}

template <class T, class... Options>
inline constexpr constant bool one_of = (is_same_v<T, Options> || ...);

// The type table of macOS 26.1.
template <class Left, class Right, class Destination>
constexpr bool is_supported() {
  if (is_same_v<Left, int8_t> && is_same_v<Right, int8_t>) {
    return is_same_v<Destination, int32_t>;
  }
  if (!one_of<Left, float, half, bfloat, int8_t> || !one_of<Right, float, half, bfloat, int8_t>) {
    return false;
  }
  if (is_same_v<Left, float> || is_same_v<Right, float>) {
    return is_same_v<Destination, float>;
  }
  if (is_same_v<Left, Right> || one_of<int8_t, Left, Right>) {
    return one_of<Destination, float, conditional_t<is_same_v<Left, int8_t>, Right, Left>>;
  }
  return one_of<Destination, float, half, bfloat>;
}

template <class T>
inline constexpr constant bool is_const_operand = is_const_v<T> || is_const_v<typename T::element_type>;

template <class T>
inline constexpr constant bool is_int_matrix = is_same_v<typename T::index_type, int> && T::get_rank() == 2;

// Left and Right of the tensors that a destination was made for.
template <ulong Descriptor, class Scope, class Left, class Right>
struct destination_layout {
  template <class L, class R>
  static constexpr constant bool fits =
      is_same_v<L, remove_addrspace_t<Left>> && is_same_v<R, remove_addrspace_t<Right>>;
};

template <class Destination, class Left, class Right>
inline constexpr constant bool is_made_for = true;
template <class E, class X, class Layout, class Left, class Right>
inline constexpr constant bool is_made_for<cooperative_tensor<E, X, Layout>, Left, Right> =
    Layout::template fits<Left, Right>;

template <ulong Descriptor, class Scope, bool Right>
struct input_layout {};

}  // namespace lint_detail

template <ulong Descriptor, class Scope, class... Args>
class matmul2d {
  template <class E, class Coord, class Layout>
  using tile =
      metal::cooperative_tensor<E, metal::extents<Coord, lint_detail::n_of(Descriptor), lint_detail::m_of(Descriptor)>,
                                Layout>;

 public:
  using scope = Scope;

  template <class Left, class Right, class ElementType, class CoordType = int>
  tile<ElementType, CoordType, lint_detail::destination_layout<Descriptor, Scope, Left, Right>>
  get_destination_cooperative_tensor() const;
  template <class LeftElement, class RightElement, class DestinationElement, class CoordType = int>
  tile<LeftElement, CoordType, lint_detail::input_layout<Descriptor, Scope, false>> get_left_input_cooperative_tensor()
      const;
  template <class LeftElement, class RightElement, class DestinationElement, class CoordType = int>
  tile<RightElement, CoordType, lint_detail::input_layout<Descriptor, Scope, true>> get_right_input_cooperative_tensor()
      const;

  // clang-format off
  template <class Left, class Right, class Destination>
  void run(thread Left& left, thread Right& right, thread Destination& destination) const
      METAL_LINT_RULE((lint_detail::is_const_operand<Left> || lint_detail::is_const_operand<Right>),
                      "const-operand: matmul2d rejects operands of const elements, with misleading messages")
      METAL_LINT_RULE((!lint_detail::is_int_matrix<Left> || !lint_detail::is_int_matrix<Right> ||
                       !lint_detail::is_int_matrix<Destination>),
                      "index-type: matmul2d takes rank-2 tensors whose extents are int")
      METAL_LINT_RULE((!lint_detail::is_supported<typename Left::value_type, typename Right::value_type,
                                                  typename Destination::value_type>()),
                      "element-types: matmul2d has no such combination of element types")
      METAL_LINT_RULE((!lint_detail::is_made_for<Destination, Left, Right>),
                      "operand-types: the destination was made for operands of other types")
      METAL_LINT_RULE((!lint_detail::is_tile<Descriptor, Scope, Left, Right>()),
                      "tile-shape: computed wrongly or rejected, depending on the macOS version");
  // clang-format on

  // Only a temporary gets here.
  template <class Left, class Right, class Destination>
  void run(const thread Left& left, const thread Right& right, const thread Destination& destination) const
      METAL_LINT_RULE(true, "temporary-operand: run() takes non-const lvalues: name every operand");
};

}  // namespace mpp::tensor_ops
