// Checks how strided operands become a loop over products, with numbers worked out by hand: sizes that no test machine
// has the memory for, on either side of 2^31 and 2^32 elements. Exits 1 when anything differs.
#include <limits>

#include "csrc/layout.h"
#include "expect.h"

namespace {

using namespace mlx_gemm;

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int kLongest = std::numeric_limits<int32_t>::max();

GemmView view(const Strided& a, const Strided& b) { return view_gemm(a, b, kBlasAddressing); }

void check_leading_dimensions() {
  const Strided b = row_contiguous(std::vector{3, 5});
  for (const int64_t ld : {int64_t{3}, kInt32Max - 1, kInt32Max}) {
    const GemmView rows = view({{4, 3}, {ld, 1}}, b);
    same(rows.copied_a.has_value(), false);
    same(rows.problem.lda, ld);
    const GemmView columns = view(row_contiguous(std::vector{2, 3}), {{3, 5}, {1, ld}});
    same(columns.copied_b.has_value(), false);
    same(columns.problem.ldb, ld);
    same(columns.problem.layout == Layout::nt, true);
  }
  // Beyond 32 bits, below the width of a row, or backwards: only a copy has a leading dimension.
  for (const int64_t ld : {kInt32Max + 1, int64_t{1} << 40, int64_t{2}, int64_t{0}, int64_t{-3}}) {
    const GemmView copied = view({{4, 3}, {ld, 1}}, b);
    same(copied.copied_a.has_value(), true);
    same(copied.problem.lda, 3);
    same(view(row_contiguous(std::vector{2, 3}), {{3, 5}, {1, ld}}).copied_b.has_value(), true);
  }
  // The stride of a single row means nothing.
  for (const int64_t ld : {kInt32Max + 1, int64_t{0}, int64_t{-3}}) {
    const GemmView one = view({{1, 3}, {ld, 1}}, b);
    same(one.copied_a.has_value(), false);
    same(one.problem.lda, 3);
  }
}

void check_joined_rows() {
  const Strided b = row_contiguous(std::vector{3, 5});
  const GemmView most = view(row_contiguous(std::vector{2, kLongest / 2, 3}), b);
  same(most.problem.M, kInt32Max - 1);
  same(most.problem.batch, 1);
  // One more and the rows fit 32 bits no longer: a loop over the outermost dimension.
  const GemmView more = view(row_contiguous(std::vector{2, kLongest / 2 + 1, 3}), b);
  same(more.problem.M, kInt32Max / 2 + 1);
  same(more.problem.batch, 2);
  same(more.a_steps.front(), (kInt32Max / 2 + 1) * 3);
  const GemmView three = view(row_contiguous(std::vector{70000, 40000, 2, 3}), b);
  same(three.problem.M, 80000);
  same(three.problem.batch, 70000);
  same(three.a_steps.front(), 240000);
  // Single rows that repeat or run backwards have no leading dimension; they are a loop.
  for (const int64_t step : {int64_t{0}, int64_t{-3}}) {
    const GemmView rows = view({{7, 1, 3}, {step, 3, 1}}, b);
    same(rows.copied_a.has_value(), false);
    same(rows.problem.batch, 7);
    same(rows.problem.M, 1);
    same(rows.a_steps.front(), step);
  }
  const GemmView outer = view({{2, 7, 1, 3}, {0, 3, 3, 1}}, b);
  same(outer.problem.M, 7);
  same(outer.problem.batch, 2);
  same(outer.a_steps.front(), 0);
}

void check_offsets() {
  // [2, 3, M, K] of matrices of 2^31 + 2^20 elements each; b has one matrix for the first batch dimension.
  const int M = 1 << 16, K = (1 << 15) + 16;
  const GemmView large = view(row_contiguous(std::vector{2, 3, M, K}), row_contiguous(std::vector{3, K, 8}));
  const int64_t matrix = int64_t{M} * K;
  same(matrix > kInt32Max, true);
  same(large.problem.batch, 6);
  for (int64_t i = 0; i < 6; ++i) {
    const OperandOffsets at = offsets_of_product(large, i);
    same(at.a, i * matrix);
    same(at.b, i % 3 * int64_t{K} * 8);
    same(at.c, i * M * 8);
  }
  // More products than 32 bits count; a steps backwards along the outer dimension, b repeats along the inner one.
  const GemmView many = view({{70000, 70000, 2, 3}, {-420007, 6, 3, 1}}, {{70000, 1, 3, 4}, {12, 0, 4, 1}});
  const int64_t products = int64_t{70000} * 70000;
  same(many.problem.batch, products);
  const OperandOffsets last = offsets_of_product(many, products - 1);
  same(last.a, int64_t{69999} * (6 - 420007));
  same(last.b, 69999 * 12);
  same(last.c, (products - 1) * 8);
}

void check_copies() {
  // Of a repeated operand one of each matrix is copied.
  const Strided repeated{{6, 5, 4, 3}, {40, 0, 6, 2}};
  const GemmView copied = view(repeated, row_contiguous(std::vector{5, 3, 2}));
  same(copied.copied_a->shape == std::vector{6, 1, 4, 3}, true);
  same(copied.copied_a->strides == repeated.strides, true);
  same(copied.problem.batch, 30);
  same(offsets_of_product(copied, 29).a, 60);
  // Where a kernel's rules apply to all rows, they are copied as often as they repeat.
  const GemmView joined = view_gemm(repeated, row_contiguous(std::vector{3, 2}), {.copy_to_join = true});
  same(joined.copied_a->shape == repeated.shape, true);
  same(joined.problem.batch, 1);
  same(joined.problem.M, 120);
  // A copy beyond 2^32 elements.
  const GemmView spaced = view({{70000, 70000, 2}, {280000, 4, 2}}, row_contiguous(std::vector{70000, 2, 2}));
  same(spaced.copied_a.has_value(), true);
  same(offsets_of_product(spaced, 69999).a, int64_t{69999} * 140000);
}

void check_what_a_kernel_addresses() {
  Addressing rows_only{.transposed = false, .join_rows = false, .max_extent = 1 << 20};
  const Strided b = row_contiguous(std::vector{16, 8});
  same(view_gemm({{64, 16}, {1, 64}}, b, rows_only).copied_a.has_value(), true);
  same(view_gemm(row_contiguous(std::vector{4, 64, 16}), b, rows_only).problem.batch, 4);
  same(view_gemm({{64, 16}, {1 << 14, 1}}, b, rows_only).copied_a.has_value(), false);
  same(view_gemm({{64, 16}, {1 << 15, 1}}, b, rows_only).copied_a.has_value(), true);
}

}  // namespace

int main() {
  check_leading_dimensions();
  check_joined_rows();
  check_offsets();
  check_copies();
  check_what_a_kernel_addresses();
  return report();
}
