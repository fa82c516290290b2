// How a product of strided arrays becomes a loop over matrix products that a kernel or BLAS can address.
#pragma once

#include <cstdint>
#include <limits>

#include "csrc/problem.h"
#include "csrc/registry.h"
#include "mlx/array.h"

namespace mlx_gemm {

namespace mx = mlx::core;

// Shape and strides of an operand, [..., rows, columns].
struct Strided {
  mx::Shape shape;
  mx::Strides strides;
};

Strided row_contiguous(const mx::Shape& shape);

// What a copy of the operand holds: batch dimensions that repeat one matrix have length 1.
Strided distinct(const Strided& operand);

// What the code that multiplies can address.
struct Addressing {
  bool transposed = true;  // column-contiguous operands
  bool join_rows = true;   // any number of rows: leading dimensions of A that share B become rows of one product
  int64_t max_extent = std::numeric_limits<int64_t>::max();
};

constexpr Addressing kBlasAddressing{};
Addressing addressing_of(const KernelInfo& kernel);

// C[..., M, N] as problem.batch products, one per index of `loop`, outermost dimension first.
struct GemmView {
  Problem problem;
  mx::Shape loop;
  mx::Strides a_steps;  // in elements, per dimension of the loop; 0 where the operand is broadcast
  mx::Strides b_steps;
  bool copy_a = false;  // the operand is not addressable: the view is that of a row-contiguous copy of distinct(a)
  bool copy_b = false;
};

// The batch dimensions of a and b must broadcast, and their inner dimensions agree.
GemmView view_gemm(const Strided& a, const Strided& b, const Addressing& addressing);

// Elements from an operand's first matrix to that of loop index `index`, counted in row-major order.
int64_t step_offset(int64_t index, const mx::Shape& loop, const mx::Strides& steps);

}  // namespace mlx_gemm
