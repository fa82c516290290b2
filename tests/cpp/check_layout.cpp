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
  const Strided b = row_contiguous({3, 5});
  for (const int64_t ld : {int64_t{3}, kInt32Max - 1, kInt32Max}) {
    const GemmView rows = view({{4, 3}, {ld, 1}}, b);
    same(rows.copy_a, false);
    same(rows.problem.lda, ld);
    const GemmView columns = view(row_contiguous({2, 3}), {{3, 5}, {1, ld}});
    same(columns.copy_b, false);
    same(columns.problem.ldb, ld);
    same(columns.problem.layout == Layout::nt, true);
  }
  // Beyond 32 bits, below the width of a row, or backwards: only a copy has a leading dimension.
  for (const int64_t ld : {kInt32Max + 1, int64_t{1} << 40, int64_t{2}, int64_t{0}, int64_t{-3}}) {
    const GemmView copied = view({{4, 3}, {ld, 1}}, b);
    same(copied.copy_a, true);
    same(copied.problem.lda, 3);
    same(view(row_contiguous({2, 3}), {{3, 5}, {1, ld}}).copy_b, true);
  }
  // The stride of a single row means nothing.
  for (const int64_t ld : {kInt32Max + 1, int64_t{0}, int64_t{-3}}) {
    const GemmView one = view({{1, 3}, {ld, 1}}, b);
    same(one.copy_a, false);
    same(one.problem.lda, 3);
  }
}

void check_joined_rows() {
  const Strided b = row_contiguous({3, 5});
  const GemmView most = view(row_contiguous({2, kLongest / 2, 3}), b);
  same(most.problem.M, kInt32Max - 1);
  same(most.problem.batch, 1);
  // One more and the rows fit 32 bits no longer: a loop over the outermost dimension.
  const GemmView more = view(row_contiguous({2, kLongest / 2 + 1, 3}), b);
  same(more.problem.M, kInt32Max / 2 + 1);
  same(more.problem.batch, 2);
  same(more.a_steps.front(), (kInt32Max / 2 + 1) * 3);
  const GemmView three = view(row_contiguous({70000, 40000, 2, 3}), b);
  same(three.problem.M, 80000);
  same(three.problem.batch, 70000);
  same(three.a_steps.front(), 240000);
  // Single rows that repeat or run backwards have no leading dimension; they are a loop.
  for (const int64_t step : {int64_t{0}, int64_t{-3}}) {
    const GemmView rows = view({{7, 1, 3}, {step, 3, 1}}, b);
    same(rows.copy_a, false);
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
  const GemmView large = view(row_contiguous({2, 3, M, K}), row_contiguous({3, K, 8}));
  const int64_t matrix = int64_t{M} * K;
  same(matrix > kInt32Max, true);
  same(large.problem.batch, 6);
  for (int64_t i = 0; i < 6; ++i) {
    same(step_offset(i, large.loop, large.a_steps), i * matrix);
    same(step_offset(i, large.loop, large.b_steps), i % 3 * int64_t{K} * 8);
  }
  // More products than 32 bits count, each 5 elements from the last; b repeats along the inner dimension.
  const mx::Shape loop{70000, 70000};
  same(step_offset(int64_t{70000} * 70000 - 1, loop, {70000 * 5, 5}), (int64_t{70000} * 70000 - 1) * 5);
  same(step_offset(int64_t{70000} * 70000 - 1, loop, {5, 0}), 69999 * 5);
  same(step_offset(70000, loop, {-5, 7}), -5);
}

void check_copies() {
  // Of a repeated operand one of each matrix is copied.
  const Strided repeated{{6, 5, 4, 3}, {40, 0, 6, 2}};
  const Strided once = distinct(repeated);
  same(once.shape == mx::Shape{6, 1, 4, 3}, true);
  const GemmView copied = view(repeated, row_contiguous({5, 3, 2}));
  same(copied.copy_a, true);
  same(copied.a_steps == mx::Strides{12, 0}, true);
  same(copied.problem.batch, 30);
  same(step_offset(29, copied.loop, copied.a_steps), 60);
  same(distinct({{0, 4, 3}, {0, 3, 1}}).shape == mx::Shape{0, 4, 3}, true);
  // A copy beyond 2^32 elements.
  const GemmView large = view({{70000, 70000, 2}, {2, 140000, 1}}, row_contiguous({70000, 2, 2}));
  same(large.copy_a, false);
  const GemmView spaced = view({{70000, 70000, 2}, {280000, 4, 2}}, row_contiguous({70000, 2, 2}));
  same(spaced.copy_a, true);
  same(step_offset(69999, spaced.loop, spaced.a_steps), int64_t{69999} * 140000);
}

void check_what_a_kernel_addresses() {
  Addressing rows_only{.transposed = false, .join_rows = false, .max_extent = 1 << 20};
  const Strided b = row_contiguous({16, 8});
  same(view_gemm({{64, 16}, {1, 64}}, b, rows_only).copy_a, true);
  same(view_gemm(row_contiguous({4, 64, 16}), b, rows_only).problem.batch, 4);
  same(view_gemm({{64, 16}, {1 << 14, 1}}, b, rows_only).copy_a, false);
  same(view_gemm({{64, 16}, {1 << 15, 1}}, b, rows_only).copy_a, true);
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
