// How a product of strided arrays becomes a loop over matrix products that a kernel or BLAS can address. Pure C++: no
// MLX arrays.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "csrc/problem.h"
#include "csrc/registry.h"

namespace mlx_gemm {

// Shape and strides of an operand, [..., rows, columns]; strides in elements.
struct Strided {
  std::vector<int> shape;
  std::vector<int64_t> strides;
};

template <class Array>
Strided layout_of(const Array& array) {
  return {{array.shape().begin(), array.shape().end()}, {array.strides().begin(), array.strides().end()}};
}

Strided row_contiguous(std::span<const int> shape);

// What the code that multiplies can address.
struct Addressing {
  bool transposed = true;     // column-contiguous operands
  bool join_rows = true;      // any number of rows: leading dimensions of A that share B become rows of one product
  bool copy_to_join = false;  // A is copied where its strides keep rows apart that its shape would let join
  int64_t max_extent = std::numeric_limits<int64_t>::max();
  int64_t max_ld = std::numeric_limits<int32_t>::max();
};

constexpr Addressing kBlasAddressing{};
// For products of this type and K.
Addressing addressing_of(const KernelInfo& kernel, Dtype dtype, int64_t K);

// C[..., M, N] as problem.batch products, one per index of `loop`, outermost dimension first.
struct GemmView {
  Problem problem;
  std::vector<int> loop;
  std::vector<int64_t> a_steps;  // in elements, per dimension of the loop; 0 where the operand is broadcast
  std::vector<int64_t> b_steps;
  // What is copied, row-contiguous, of an operand that is not addressable: the view is that of the copy.
  std::optional<Strided> copied_a;
  std::optional<Strided> copied_b;

  int copies() const { return copied_a.has_value() + copied_b.has_value(); }
};

// The batch dimensions of a and b must broadcast, and their inner dimensions agree.
GemmView view_gemm(const Strided& a, const Strided& b, const Addressing& addressing);

// An array that is added to C, as the view takes C apart: strides in elements, 0 where it is broadcast.
struct AddendView {
  int64_t row_stride = 0;
  int64_t column_stride = 0;
  std::vector<int64_t> steps;  // per dimension of the loop
};

// `addend` is broadcast to the shape of C. Nothing where the view joins rows that one stride of it does not cover.
std::optional<AddendView> view_addend(const Strided& addend, const GemmView& view);

// Offsets of the first element of each operand, in elements.
struct OperandOffsets {
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
};

// Where the matrices of product `index` start, counted in row-major order of the loop.
OperandOffsets offsets_of_product(const GemmView& view, int64_t index);

}  // namespace mlx_gemm
