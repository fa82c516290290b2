#include "csrc/backends/cpu/line_gemm.h"

#include <algorithm>
#include <array>

#include "csrc/backends/cpu/workspace.h"
#include "csrc/thread_pool.h"

namespace mlx_gemm {
namespace {

// With more, packing pays: every line is read once for 8 vectors.
constexpr int64_t kMostLines = 16;
// Below this the sums across vector registers are most of the work.
constexpr int64_t kLeastK = 128;
// Of the vectors along K, so that they stay in the first-level cache.
constexpr int64_t kCachedElements = 8192;
// Lines of a task: a step of them stays in the second-level cache for the next 8 vectors.
constexpr int64_t kTaskLines = 96;

bool has_few_rows(const Problem& problem) { return problem.M <= kMostLines && b_transposed(problem.layout); }

bool has_few_columns(const Problem& problem) { return problem.N <= kMostLines && !a_transposed(problem.layout); }

// One operand as numbers along K: elements from one line to the next, and from one k to the next.
struct Lines {
  const void* data;
  int64_t line_stride;
  int64_t k_stride;
};

using Widen = void (*)(const uint16_t* from, int64_t count, float* to);

class LineGemm {
 public:
  explicit LineGemm(const CpuProduct& product)
      : product_(product),
        problem_(product.view.problem),
        few_rows_(has_few_rows(problem_)),
        step_(kCachedElements / std::min(vectors(), kMostVectors)) {}

  int64_t tasks() const { return problem_.batch * tasks_of_product(); }

  void run(int64_t task) const {
    const int64_t index = task / tasks_of_product();
    const int64_t first = task % tasks_of_product() * kTaskLines;
    const int64_t count = std::min(kTaskLines, lines() - first);
    const OperandOffsets at = offsets_of_product(product_.view, index);
    const Lines a{element(product_.a, at.a), a_transposed(problem_.layout) ? 1 : problem_.lda,
                  a_transposed(problem_.layout) ? problem_.lda : 1};
    const Lines b{element(product_.b, at.b), b_transposed(problem_.layout) ? problem_.ldb : 1,
                  b_transposed(problem_.layout) ? 1 : problem_.ldb};
    const Lines& many = few_rows_ ? b : a;
    // As D holds them: rows of D are vectors, or lines.
    const int64_t ld = few_rows_ ? count : vectors();
    float* sums = float_workspace(Workspace::sums, count * vectors());
    LineProducts products{.lines = nullptr,
                          .ld = many.line_stride,
                          .count = count,
                          .x = nullptr,
                          .ldx = step_,
                          .vectors = 0,
                          .k = 0,
                          .sums = nullptr,
                          .line_step = few_rows_ ? 1 : ld,
                          .x_step = few_rows_ ? ld : 1,
                          .accumulate = false};
    for (int64_t k = 0; k < problem_.K; k += step_) {
      products.k = std::min(step_, problem_.K - k);
      products.lines = element(many.data, first * many.line_stride + k);
      products.accumulate = k > 0;
      for (int64_t vector = 0; vector < vectors(); vector += kMostVectors) {
        products.vectors = std::min(kMostVectors, vectors() - vector);
        products.x = read_vectors(few_rows_ ? a : b, vector, products.vectors, k, products.k);
        products.sums = sums + vector * products.x_step;
        multiply(products);
      }
    }
    const int64_t row = index * problem_.M;
    const Region region = few_rows_ ? Region{row, vectors(), first, count} : Region{row + first, count, 0, vectors()};
    product_.epilogue.finish(region, sums, ld, product_.epilogue.epilogue.alpha);
  }

 private:
  int64_t lines() const { return few_rows_ ? problem_.N : problem_.M; }
  int64_t vectors() const { return few_rows_ ? problem_.M : problem_.N; }
  int64_t tasks_of_product() const { return divide_up(lines(), kTaskLines); }

  const void* element(const void* data, int64_t index) const {
    return static_cast<const std::byte*>(data) + index * bytes_per_element(problem_.dtype);
  }

  // As float32, one after the other.
  const float* read_vectors(const Lines& x, int64_t first, int64_t count, int64_t k, int64_t length) const {
    float* wide = float_workspace(Workspace::a, kCachedElements);
    for (int64_t i = 0; i < count; ++i) {
      const void* from = element(x.data, (first + i) * x.line_stride + k * x.k_stride);
      float* to = wide + i * step_;
      if (problem_.dtype == Dtype::float32) {
        for (int64_t j = 0; j < length; ++j) {
          to[j] = static_cast<const float*>(from)[j * x.k_stride];
        }
      } else {
        widen(static_cast<const uint16_t*>(from), x.k_stride, length, to);
      }
    }
    return wide;
  }

  void widen(const uint16_t* from, int64_t stride, int64_t count, float* to) const {
    const Widen convert = problem_.dtype == Dtype::float16 ? row_kernels().widen_half : row_kernels().widen_bfloat;
    if (stride == 1) {
      convert(from, count, to);
      return;
    }
    std::array<uint16_t, 256> contiguous;
    for (int64_t done = 0; done < count;) {
      const int64_t part = std::min<int64_t>(count - done, contiguous.size());
      for (int64_t i = 0; i < part; ++i) {
        contiguous[static_cast<size_t>(i)] = from[(done + i) * stride];
      }
      convert(contiguous.data(), part, to + done);
      done += part;
    }
  }

  void multiply(const LineProducts& products) const {
    switch (problem_.dtype) {
      case Dtype::float16:
        return row_kernels().multiply_halves(products);
      case Dtype::bfloat16:
        return row_kernels().multiply_bfloats(products);
      default:
        return row_kernels().multiply_floats(products);
    }
  }

  const CpuProduct& product_;
  const Problem& problem_;
  bool few_rows_;
  int64_t step_;
};

}  // namespace

bool suits_lines(const Problem& problem) {
  const bool known =
      problem.dtype == Dtype::float32 || problem.dtype == Dtype::float16 || problem.dtype == Dtype::bfloat16;
  // A vector of float32 is for BLAS.
  const bool vector = problem.dtype == Dtype::float32 && (problem.M == 1 || problem.N == 1);
  return known && !vector && problem.K >= kLeastK && (has_few_rows(problem) || has_few_columns(problem));
}

void multiply_lines(const CpuProduct& product) {
  const LineGemm gemm(product);
  parallel_for(gemm.tasks(), threads_for(product.view.problem), [&](int64_t task) { gemm.run(task); });
}

}  // namespace mlx_gemm
