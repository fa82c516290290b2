#include "csrc/layout.h"

#include <algorithm>

namespace mlx_gemm {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

// A matrix in memory, its row stride and column stride in elements.
struct Matrix {
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
  int64_t column_stride;
};

struct Addressed {
  bool transposed;
  int64_t ld;
};

// The strides of an axis of length 1 are free.
std::optional<int64_t> leading_dimension(const Matrix& m, const Addressing& addressing) {
  if (m.columns > 1 && m.column_stride != 1) {
    return {};
  }
  const int64_t ld = m.rows > 1 ? m.row_stride : std::max<int64_t>(m.columns, 1);
  if (ld < std::max<int64_t>(m.columns, 1) || ld > addressing.max_ld ||
      (m.rows - 1) * ld + m.columns > addressing.max_extent) {
    return {};
  }
  return ld;
}

std::optional<Addressed> address(const Matrix& m, const Addressing& addressing) {
  if (const auto ld = leading_dimension(m, addressing)) {
    return Addressed{false, *ld};
  }
  const Matrix transpose{m.columns, m.rows, m.column_stride, m.row_stride};
  if (const auto ld = leading_dimension(transpose, addressing); ld && addressing.transposed) {
    return Addressed{true, *ld};
  }
  return {};
}

int batch_dims(const Strided& operand) { return static_cast<int>(operand.shape.size()) - 2; }

Matrix matrix_of(const Strided& operand) {
  const int rows = batch_dims(operand);
  return {operand.shape[rows], operand.shape[rows + 1], operand.strides[rows], operand.strides[rows + 1]};
}

bool is_one_matrix(const Strided& operand) {
  return std::all_of(operand.shape.begin(), operand.shape.end() - 2, [](int length) { return length == 1; });
}

// `m` with the batch dimension outside it as further rows, where one row stride covers both.
std::optional<Matrix> with_rows_of(Matrix m, int64_t length, int64_t stride) {
  const bool joins = length <= 1 || m.rows <= 1 || stride == m.rows * m.row_stride;
  if (!joins || length * m.rows > kInt32Max) {
    return {};
  }
  if (length > 1 && m.rows <= 1) {
    m.row_stride = stride;
  }
  m.rows *= length;
  return m;
}

// The dimensions of an operand that the loop runs over: its first `count`.
struct LoopDims {
  const Strided& operand;
  int count;

  // Counted from the right, from 1. A dimension that the operand lacks is broadcast.
  int length(int dim) const { return dim <= count ? operand.shape[count - dim] : 1; }
  int64_t step(int dim) const { return length(dim) == 1 ? 0 : operand.strides[count - dim]; }
};

struct AddressedRows {
  Matrix matrix;
  int loop_dims;
  std::optional<Addressed> addressed;
};

// Innermost batch dimensions become rows for as long as the result is addressable: a step that repeats or reverses
// single rows is no leading dimension, but one of the loop.
AddressedRows address_rows(const Strided& a, bool join, const Addressing& addressing) {
  AddressedRows rows{matrix_of(a), batch_dims(a), {}};
  rows.addressed = address(rows.matrix, addressing);
  while (join && rows.addressed && rows.loop_dims > 0) {
    const int dim = rows.loop_dims - 1;
    const auto joined = with_rows_of(rows.matrix, a.shape[dim], a.strides[dim]);
    const auto addressed = joined ? address(*joined, addressing) : std::nullopt;
    if (!addressed) {
      break;
    }
    rows = {*joined, dim, addressed};
  }
  return rows;
}

// The operand with as many batch dimensions as `dims`, so that those of an addend, which has the product's, face its
// own.
Strided with_leading_ones(Strided operand, int dims) {
  const auto missing = static_cast<size_t>(std::max(dims - batch_dims(operand), 0));
  operand.shape.insert(operand.shape.begin(), missing, 1);
  operand.strides.insert(operand.strides.begin(), missing, 0);
  return operand;
}

// What a copy needs to hold of an operand: of the matrices that a batch dimension repeats, one.
Strided distinct(Strided operand) {
  for (int dim = 0; dim < batch_dims(operand); ++dim) {
    if (operand.strides[dim] == 0) {
      operand.shape[dim] = std::min(operand.shape[dim], 1);
    }
  }
  return operand;
}

// The operand, laid out as its row-contiguous copy is.
Strided as_copied(const Strided& operand, const Strided& copied) {
  Strided result{operand.shape, row_contiguous(copied.shape).strides};
  for (size_t dim = 0; dim < result.shape.size(); ++dim) {
    if (copied.shape[dim] != result.shape[dim]) {
      result.strides[dim] = 0;
    }
  }
  return result;
}

// Elements from an operand's first matrix to that of loop index `index`.
int64_t step_offset(int64_t index, std::span<const int> loop, std::span<const int64_t> steps) {
  int64_t offset = 0;
  for (size_t dim = loop.size(); dim-- > 0; index /= loop[dim]) {
    offset += index % loop[dim] * steps[dim];
  }
  return offset;
}

}  // namespace

Strided row_contiguous(std::span<const int> shape) {
  Strided result{{shape.begin(), shape.end()}, std::vector<int64_t>(shape.size(), 1)};
  for (int dim = static_cast<int>(shape.size()) - 2; dim >= 0; --dim) {
    result.strides[dim] = result.strides[dim + 1] * std::max(shape[dim + 1], 1);
  }
  return result;
}

Addressing addressing_of(const KernelInfo& kernel, Dtype dtype, int64_t K) {
  Addressing addressing{
      .transposed = kernel.layouts != "nn", .join_rows = kernel.fused(), .max_extent = max_extent(kernel)};
  if (kernel.fused() && kernel.tensorops()) {
    const int64_t rows = std::max<int64_t>({kernel.bm, kernel.bn, kernel.bk > 0 ? kernel.bk : K});
    addressing.max_ld = (kMaxTileBytes - 1) / (rows * bytes_per_element(dtype));
  }
  return addressing;
}

GemmView view_gemm(const Strided& a_given, const Strided& b_given, const Addressing& addressing) {
  GemmView view;
  Strided b = b_given;
  auto b_addressed = address(matrix_of(b), addressing);
  if (!b_addressed) {
    view.copied_b = distinct(b_given);
    b = as_copied(b_given, *view.copied_b);
    b_addressed = address(matrix_of(b), kBlasAddressing);
  }
  const bool one_b = is_one_matrix(b);

  Strided a = with_leading_ones(a_given, batch_dims(b_given));
  const bool join = one_b && addressing.join_rows;
  AddressedRows rows = address_rows(a, join, addressing);
  const bool must_join = join && addressing.copy_to_join;
  const bool kept_apart =
      must_join && rows.loop_dims > address_rows(row_contiguous(a.shape), join, kBlasAddressing).loop_dims;
  if (!rows.addressed || kept_apart) {
    view.copied_a = must_join ? a : distinct(a);
    a = as_copied(a, *view.copied_a);
    rows = address_rows(a, join, kBlasAddressing);
  }

  const LoopDims a_dims{a, rows.loop_dims};
  const LoopDims b_dims{b, one_b ? 0 : batch_dims(b)};
  for (int dim = std::max(a_dims.count, b_dims.count); dim > 0; --dim) {
    view.loop.push_back(a_dims.length(dim) == 1 ? b_dims.length(dim) : a_dims.length(dim));
    view.a_steps.push_back(a_dims.step(dim));
    view.b_steps.push_back(b_dims.step(dim));
    view.problem.batch *= view.loop.back();
  }
  view.problem.M = rows.matrix.rows;
  view.problem.N = matrix_of(b).columns;
  view.problem.K = rows.matrix.columns;
  view.problem.lda = rows.addressed->ld;
  view.problem.ldb = b_addressed->ld;
  view.problem.layout = make_layout(rows.addressed->transposed, b_addressed->transposed);
  return view;
}

std::optional<AddendView> view_addend(const Strided& addend, const GemmView& view) {
  const size_t loop = view.loop.size();
  const size_t columns = addend.shape.size() - 1;
  AddendView result;
  result.column_stride = addend.strides[columns];
  result.steps.assign(addend.strides.begin(), addend.strides.begin() + static_cast<std::ptrdiff_t>(loop));
  int64_t rows = 1;  // joined so far, from the last dimension on
  for (size_t dim = columns; dim-- > loop;) {
    const int64_t length = addend.shape[dim];
    const int64_t stride = addend.strides[dim];
    if (length == 1) {
      continue;
    }
    if (rows == 1) {
      result.row_stride = stride;
    } else if (stride != rows * result.row_stride) {
      return {};
    }
    rows *= length;
  }
  return result;
}

OperandOffsets offsets_of_product(const GemmView& view, int64_t index) {
  const Problem& problem = view.problem;
  return {.a = step_offset(index, view.loop, view.a_steps),
          .b = step_offset(index, view.loop, view.b_steps),
          .c = index * problem.M * problem.N};
}

}  // namespace mlx_gemm
