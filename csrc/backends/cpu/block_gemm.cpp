#include "csrc/backends/cpu/block_gemm.h"

#include <algorithm>

#include "csrc/backends/cpu/blas.h"
#include "csrc/backends/cpu/workspace.h"
#include "csrc/thread_pool.h"

namespace mlx_gemm {
namespace {

// Another thread pays from here on: for what is computed, or for what is read.
constexpr int64_t kOperationsPerThread = 4 << 20;
constexpr int64_t kBytesPerThread = 1 << 19;
// Half types: the float32 copies of both operands' parts and the sums stay in the second-level cache.
constexpr int64_t kWideBlock = 512;
constexpr int64_t kWideStep = 256;
// With so few rows or columns gemv is faster, once per row, on a part of the other operand that stays in that cache.
constexpr int64_t kFewLines = 4;
constexpr int64_t kCachedElements = 1 << 17;
// Of a matrix that meets a single vector: few enough for whoever comes late to do less.
constexpr int64_t kVectorElements = 1 << 20;
// Blocks start where vectors do.
constexpr int64_t kLineMultiple = 16;

bool is_half(Dtype dtype) { return dtype == Dtype::float16 || dtype == Dtype::bfloat16; }

struct BlockGrid {
  const Problem& problem;
  int64_t rows;
  int64_t columns;

  int64_t down() const { return divide_up(problem.M, rows); }
  int64_t across() const { return divide_up(problem.N, columns); }
  int64_t count() const { return problem.batch * down() * across(); }

  Block at(int64_t index) const {
    const int64_t column = index % across() * columns;
    const int64_t row = index / across() % down() * rows;
    return {index / across() / down(), row, std::min(rows, problem.M - row), column,
            std::min(columns, problem.N - column)};
  }

  // Splits the longer side.
  void split(int64_t parts) {
    int64_t& longer = rows >= columns ? rows : columns;
    longer = divide_up(divide_up(longer, parts), kLineMultiple) * kLineMultiple;
  }
};

BlockGrid grid_for(const Problem& problem, int threads) {
  BlockGrid grid{problem, problem.M, problem.N};
  const int64_t fewest = std::min(problem.M, problem.N);
  if (fewest <= kFewLines) {
    const int64_t elements = fewest == 1 ? kVectorElements : kCachedElements;
    const int64_t lines = std::max(elements / problem.K / kLineMultiple, int64_t{1}) * kLineMultiple;
    (problem.M < problem.N ? grid.columns : grid.rows) = lines;
    grid.rows = std::min(grid.rows, problem.M);
    grid.columns = std::min(grid.columns, problem.N);
  } else if (is_half(problem.dtype)) {
    grid.rows = std::min(grid.rows, kWideBlock);
    grid.columns = std::min(grid.columns, kWideBlock);
  }
  // Every thread gets as much, or blocks are small enough for that not to matter.
  while (threads > 1 && grid.count() % threads != 0 && grid.count() < 8 * threads &&
         std::max(grid.rows, grid.columns) > kLineMultiple) {
    grid.split(2);
  }
  return grid;
}

// The part of an operand from (row, column) on.
BlasMatrix part_of(const void* data, int64_t element, int64_t ld, bool transposed, int64_t row, int64_t column) {
  const int64_t offset = transposed ? column * ld + row : row * ld + column;
  return {static_cast<const std::byte*>(data) + offset * element, ld, transposed};
}

// The first `rows` and `columns` of a half-type matrix, as float32.
BlasMatrix widened(Dtype dtype, const BlasMatrix& matrix, int64_t rows, int64_t columns, Workspace buffer) {
  const auto widen = dtype == Dtype::float16 ? row_kernels().widen_half : row_kernels().widen_bfloat;
  const int64_t lines = matrix.transposed ? columns : rows;
  const int64_t length = matrix.transposed ? rows : columns;
  float* wide = float_workspace(buffer, rows * columns);
  for (int64_t line = 0; line < lines; ++line) {
    widen(static_cast<const uint16_t*>(matrix.data) + line * matrix.ld, length, wide + line * length);
  }
  return {wide, length, matrix.transposed};
}

// Few rows or columns: a product each, so that BLAS takes them for vectors.
void multiply_by_line(const BlasProduct& all) {
  const int64_t element = bytes_per_element(all.dtype);
  const bool by_row = all.M <= all.N;
  BlasProduct line = all;
  (by_row ? line.M : line.N) = 1;
  for (int64_t i = 0; i < (by_row ? all.M : all.N); ++i) {
    if (by_row) {
      line.a = part_of(all.a.data, element, all.a.ld, all.a.transposed, i, 0);
      line.c = static_cast<std::byte*>(all.c) + i * all.ldc * element;
    } else {
      line.b = part_of(all.b.data, element, all.b.ld, all.b.transposed, 0, i);
      line.c = static_cast<std::byte*>(all.c) + i * element;
    }
    blas_gemm(line);
  }
}

void multiply(const BlasProduct& product) {
  if (std::min(product.M, product.N) <= kFewLines && std::max(product.M, product.N) > kFewLines) {
    multiply_by_line(product);
  } else {
    blas_gemm(product);
  }
}

void multiply_wide(const BlasProduct& half, Dtype dtype) {
  const int64_t element = bytes_per_element(dtype);
  BlasProduct product = half;
  for (int64_t k = 0; k < half.K; k += kWideStep) {
    product.K = std::min(kWideStep, half.K - k);
    const BlasMatrix a = part_of(half.a.data, element, half.a.ld, half.a.transposed, 0, k);
    const BlasMatrix b = part_of(half.b.data, element, half.b.ld, half.b.transposed, k, 0);
    product.a = widened(dtype, a, half.M, product.K, Workspace::a);
    product.b = widened(dtype, b, product.K, half.N, Workspace::b);
    product.accumulate = k > 0;
    multiply(product);
  }
}

}  // namespace

int threads_for(const Problem& problem) {
  const int64_t operations = 2 * problem.M * problem.N * problem.K * problem.batch;
  const int64_t bytes = (problem.M + problem.N) * problem.K * problem.batch * bytes_per_element(problem.dtype);
  const int64_t worth = std::max(operations / kOperationsPerThread, bytes / kBytesPerThread);
  return static_cast<int>(std::clamp<int64_t>(worth, 1, thread_count()));
}

void for_products(const Problem& problem, const std::function<void(int64_t, int)>& body) {
  const int threads = threads_for(problem);
  const bool by_product = problem.batch >= 4 * threads;
  parallel_for(problem.batch, by_product ? threads : 1, [&](int64_t i) { body(i, by_product ? 1 : threads); });
}

void multiply_block(const CpuProduct& product, const Block& block) {
  const auto& [view, a, b, epilogue] = product;
  const Problem& problem = view.problem;
  const int64_t element = bytes_per_element(problem.dtype);
  const OperandOffsets at = offsets_of_product(view, block.product);
  const int64_t d_row = block.product * problem.M + block.row;
  const bool half = is_half(problem.dtype);
  const bool in_place = bytes_per_element(epilogue.dtype) != 2;
  void* sums =
      in_place ? epilogue.at(d_row, block.column) : float_workspace(Workspace::sums, block.rows * block.columns);
  const BlasProduct blas{
      .dtype = half ? Dtype::float32 : problem.dtype,
      .M = block.rows,
      .N = block.columns,
      .K = problem.K,
      .a = part_of(static_cast<const std::byte*>(a) + at.a * element, element, problem.lda,
                   a_transposed(problem.layout), block.row, 0),
      .b = part_of(static_cast<const std::byte*>(b) + at.b * element, element, problem.ldb,
                   b_transposed(problem.layout), 0, block.column),
      .alpha = epilogue.epilogue.alpha,
      .accumulate = false,
      .c = sums,
      .ldc = in_place ? problem.N : block.columns,
  };
  if (half) {
    multiply_wide(blas, problem.dtype);
  } else {
    multiply(blas);
  }
  if (!in_place || !epilogue.epilogue.is_identity()) {
    epilogue.finish({d_row, block.rows, block.column, block.columns}, static_cast<float*>(sums), blas.ldc, 1.0f);
  }
}

void multiply_blocks(const CpuProduct& product) {
  const Problem& problem = product.view.problem;
  const int threads = threads_for(problem);
  const BlockGrid grid = grid_for(problem, threads);
  parallel_for(grid.count(), threads, [&](int64_t i) { multiply_block(product, grid.at(i)); });
}

}  // namespace mlx_gemm
