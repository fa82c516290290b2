// TensorOps of the Metal host runtime: matmul2d on tensors, in memory or cooperative.
#pragma once

#include <metal_cooperative_tensor>

namespace METAL_HOST_MSL::metal {

template <uint N>
struct execution_simdgroups {
  static constexpr uint static_size = N;
};
using execution_simdgroup = execution_simdgroups<1>;

}  // namespace METAL_HOST_MSL::metal

namespace METAL_HOST_MSL::mpp::tensor_ops {

struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };

  int m;
  int n;
  int k;
  bool transpose_left;
  bool transpose_right;
  bool relaxed_precision;
  mode matmul_mode;

  constexpr matmul2d_descriptor(int m, int n, int k = static_cast<int>(metal::dynamic_extent),
                                bool transpose_left = false, bool transpose_right = false,
                                bool relaxed_precision = false, mode matmul_mode = mode::multiply)
      : m(m),
        n(n),
        k(k),
        transpose_left(transpose_left),
        transpose_right(transpose_right),
        relaxed_precision(relaxed_precision),
        matmul_mode(matmul_mode) {}
};

namespace detail {

template <class T, class... Options>
constexpr bool one_of = (std::is_same_v<T, Options> || ...);

// Rows of the type table up to macOS 26.1, floating-point inputs.
template <class Left, class Right, class Destination>
constexpr bool supported_types() {
  using std::is_same_v;
  if (is_same_v<Left, float> || is_same_v<Right, float>) {
    return is_same_v<Destination, float>;
  }
  if (is_same_v<Left, half> && is_same_v<Right, half>) {
    return one_of<Destination, half, float>;
  }
  if (is_same_v<Left, bfloat> && is_same_v<Right, bfloat>) {
    return one_of<Destination, bfloat, float>;
  }
  return one_of<Destination, half, bfloat, float>;
}

template <class T>
metal_host::TensorView view(T& operand) {
  static_assert(T::get_rank() == 2, "matmul2d takes rank-2 tensors");
  static_assert(std::is_same_v<typename T::index_type, int>, "matmul2d takes tensors indexed by int");
  static_assert(!std::is_const_v<typename T::element_type>, "matmul2d rejects tensors of const elements");
  return {(void*)operand.data(),
          element_tag<typename T::value_type>(),
          {operand.get_extent(0), operand.get_extent(1)},
          operand.get_stride(1),
          false};
}

template <class E, class Extents, class Layout>
metal_host::TensorView view(metal::cooperative_tensor<E, Extents, Layout>& operand) {
  constexpr int columns = int(Extents::static_extent(0));
  constexpr int rows = int(Extents::static_extent(1));
  return {operand.data(), element_tag<E>(), {columns, rows}, columns, true};
}

template <class T>
constexpr bool is_cooperative = false;
template <class E, class Extents, class Layout>
constexpr bool is_cooperative<metal::cooperative_tensor<E, Extents, Layout>> = true;

// The layout is known for the fragments of one hardware operation; of 16-bit types only at relaxed precision.
template <matmul2d_descriptor Descriptor, class Scope, class Left, class Right>
constexpr bool has_apple10_layout =
    Scope::static_size == 1 && Descriptor.m == 16 && Descriptor.n == 32 &&
    (Descriptor.k == 16 || (Descriptor.k == 32 && Descriptor.relaxed_precision)) &&
    (Descriptor.relaxed_precision || (std::is_same_v<Left, float> && std::is_same_v<Right, float>));

// Ties a cooperative tensor to the operation and the element types of its operands.
template <matmul2d_descriptor Descriptor, class Scope, class Left, class Right, bool Apple10>
struct layout {
  using left = Left;
  using right = Right;
  static constexpr uint simdgroups = Scope::static_size;
  static constexpr uint kMultiplier =
      Descriptor.relaxed_precision ? (simdgroups > 1 ? 7919 : 6277) : (simdgroups > 1 ? 5023 : 3571);  // primes
  using map = std::conditional_t<Apple10, metal::cooperative_layout::Apple10<Descriptor.relaxed_precision>,
                                 metal::cooperative_layout::Scrambled<kMultiplier>>;
};

}  // namespace detail

template <matmul2d_descriptor Descriptor, class Scope, class... Args>
class matmul2d {
  // Tiles that are right on every OS version; others are computed wrongly, or rejected from macOS 26.4 on.
  static_assert(Descriptor.m > 0 && Descriptor.n > 0, "the tile is never dynamic");
  static_assert(Descriptor.m % 16 == 0, "m must be a multiple of 16");
  static_assert(Descriptor.n % 32 == 0 || (Descriptor.n % 16 == 0 && Descriptor.m % 32 == 0),
                "n must be a multiple of 32, or of 16 with m a multiple of 32");
  static constexpr bool kDynamicK = Descriptor.k == static_cast<int>(metal::dynamic_extent);
  static_assert(kDynamicK || (Descriptor.k > 0 && Descriptor.k % 16 == 0), "a static k must be a multiple of 16");

 public:
  static constexpr matmul2d_descriptor descriptor = Descriptor;
  using scope = Scope;

  template <class LeftOperand, class RightOperand, class ElementType, class CoordType = int>
  auto get_destination_cooperative_tensor(Site site = Site::current()) const {
    using Left = typename LeftOperand::value_type;
    using Right = typename RightOperand::value_type;
    constexpr bool apple10 =
        detail::is_cooperative<LeftOperand> && detail::has_apple10_layout<Descriptor, Scope, Left, Right>;
    return tile<ElementType, CoordType, Descriptor.n, Descriptor.m, Left, Right, apple10>(site);
  }

  // Operands in registers, from macOS 26.2 on; here the element types are given.
  template <class Left, class Right, class Destination, class CoordType = int>
  auto get_left_input_cooperative_tensor(Site site = Site::current()) const {
    check_cooperative_input<Left, Right, Destination>();
    constexpr bool transposed = Descriptor.transpose_left;
    return tile<Left, CoordType, transposed ? Descriptor.m : Descriptor.k, transposed ? Descriptor.k : Descriptor.m,
                Left, Right, detail::has_apple10_layout<Descriptor, Scope, Left, Right>>(site);
  }
  template <class Left, class Right, class Destination, class CoordType = int>
  auto get_right_input_cooperative_tensor(Site site = Site::current()) const {
    check_cooperative_input<Left, Right, Destination>();
    constexpr bool transposed = Descriptor.transpose_right;
    return tile < Right, CoordType, transposed ? Descriptor.k : Descriptor.n, transposed ? Descriptor.n : Descriptor.k,
           Left, Right, detail::has_apple10_layout<Descriptor, Scope, Left, Right> && Descriptor.k == 16 > (site);
  }

  // Non-const lvalue references, as in Metal: temporaries do not bind.
  template <class Left, class Right, class Destination>
  void run(Left& left, Right& right, Destination& destination, Site site = Site::current()) const {
    check_inputs<Left, Right>();
    metal_host::MatmulCall call{};
    call.m = Descriptor.m;
    call.n = Descriptor.n;
    call.k = Descriptor.k;
    call.simdgroups = Scope::static_size;
    call.transpose_left = Descriptor.transpose_left;
    call.transpose_right = Descriptor.transpose_right;
    call.relaxed = Descriptor.relaxed_precision;
    call.accumulate = Descriptor.matmul_mode == matmul2d_descriptor::mode::multiply_accumulate;
    call.left = detail::view(left);
    call.right = detail::view(right);
    set_destination<Left, Right>(call, destination);
    metal_host::matmul2d(call, site);
  }

 private:
  template <class Left, class Right, class E, class Extents, class Layout>
  static void set_destination(metal_host::MatmulCall& call, metal::cooperative_tensor<E, Extents, Layout>& out) {
    static_assert(std::is_same_v<typename Left::value_type, typename Layout::left> &&
                      std::is_same_v<typename Right::value_type, typename Layout::right>,
                  "the operands must have the element types that the destination tensor was made for");
    check_types<typename Left::value_type, typename Right::value_type, E>();
    call.destination = detail::view(out);
  }

  template <class Left, class Right, class T>
  static void set_destination(metal_host::MatmulCall& call, T& out) {
    check_types<typename Left::value_type, typename Right::value_type, typename T::value_type>();
    call.destination = detail::view(out);
  }

  template <class Element, class CoordType, int Columns, int Rows, class Left, class Right, bool Apple10>
  static auto tile(Site site) {
    using Extents = metal::extents<CoordType, size_t(Columns), size_t(Rows)>;
    using Layout = detail::layout<Descriptor, Scope, Left, Right, Apple10>;
    return metal::cooperative_tensor<Element, Extents, Layout>(site);
  }

  template <class Left, class Right, class Destination>
  static constexpr void check_cooperative_input() {
    check_types<Left, Right, Destination>();
    static_assert(Scope::static_size == 1, "cooperative operands belong to one SIMD group");
    static_assert(!kDynamicK, "cooperative operands need a static k");
  }

  template <class Left, class Right>
  static constexpr void check_inputs() {
    if constexpr (detail::is_cooperative<Left> && detail::is_cooperative<Right>) {
      static_assert((Descriptor.m == 16 || Descriptor.m == 32) && (Descriptor.n == 16 || Descriptor.n == 32) &&
                        (Descriptor.k == 16 || Descriptor.k == 32) &&
                        (Descriptor.m == 32 || Descriptor.n == 32 || Descriptor.k == 32),
                    "with two cooperative operands m, n and k are 16 or 32, and not all 16");
    } else {
      static_assert(kDynamicK || Descriptor.k % 32 == 0, "a static k must be a multiple of 32");
    }
  }

  template <class Left, class Right, class Destination>
  static constexpr void check_types() {
    static_assert(detail::supported_types<Left, Right, Destination>(), "matmul2d does not support these element types");
  }
};

}  // namespace METAL_HOST_MSL::mpp::tensor_ops
