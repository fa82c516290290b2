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

// Numbers of a line that an update takes at a time: enough for memory to be read in long pieces, few enough for the
// sums of all vectors to stay in the first-level cache.
constexpr int64_t kLeastUpdate = 128;
constexpr int64_t kMostUpdate = 1024;
// Lines of an update: as many pages as a CPU finds fast.
constexpr int64_t kUpdateStep = 64;

bool few(int64_t lines) { return lines <= kMostLines; }

bool dots_of_rows(const Problem& problem) { return few(problem.M) && b_transposed(problem.layout); }
bool dots_of_columns(const Problem& problem) { return few(problem.N) && !a_transposed(problem.layout); }
bool updates_of_rows(const Problem& problem) { return few(problem.M) && !b_transposed(problem.layout); }
bool updates_of_columns(const Problem& problem) { return few(problem.N) && a_transposed(problem.layout); }

// One operand as numbers along K: elements from one line to the next, and from one k to the next.
struct Lines {
  const void* data;
  int64_t line_stride;
  int64_t k_stride;
};

using Widen = void (*)(const uint16_t* from, int64_t count, float* to);

using LineKernel = void (*)(const LineProducts& products);

// Few rows of A and every column of B, or few columns of B and every row of A: the few are the vectors, the others
// lines. Lines along K are multiplied by all vectors; of lines side by side a row of numbers for every k is added to
// the sums of every vector.
class LineGemm {
 public:
  LineGemm(const CpuProduct& product, bool dots, int threads)
      : product_(product),
        problem_(product.view.problem),
        few_rows_(dots ? dots_of_rows(problem_) : updates_of_rows(problem_)),
        dots_(dots),
        step_(dots ? kCachedElements / std::min(vectors(), kMostVectors) : kUpdateStep),
        task_lines_(dots ? kTaskLines
                         : std::clamp(divide_up(divide_up(lines(), threads), kLeastUpdate) * kLeastUpdate, kLeastUpdate,
                                      kMostUpdate)),
        multiply_(dots ? type_kernels(problem_.dtype)->dots : type_kernels(problem_.dtype)->updates) {}

  int64_t tasks() const { return problem_.batch * tasks_of_product(); }

  void run(int64_t task) const {
    const int64_t index = task / tasks_of_product();
    const int64_t first = task % tasks_of_product() * task_lines_;
    const int64_t count = std::min(task_lines_, lines() - first);
    const auto [few, many] = operands(index);
    float* sums = float_workspace(Workspace::sums, count * vectors());
    // Dot products are stored as D holds them.
    const bool by_line = dots_ && !few_rows_;
    LineProducts products{.lines = nullptr,
                          .ld = dots_ ? many.line_stride : many.k_stride,
                          .count = count,
                          .x = nullptr,
                          .ldx = step_,
                          .vectors = 0,
                          .k = 0,
                          .sums = nullptr,
                          .line_step = by_line ? vectors() : 1,
                          .x_step = by_line ? 1 : count,
                          .accumulate = false};
    for (int64_t k = 0; k < problem_.K; k += step_) {
      products.k = std::min(step_, problem_.K - k);
      products.lines = element(many.data, first * many.line_stride + k * many.k_stride);
      products.accumulate = k > 0;
      for (int64_t vector = 0; vector < vectors(); vector += kMostVectors) {
        products.vectors = std::min(kMostVectors, vectors() - vector);
        products.x = read_vectors(few, {vector, products.vectors, k, products.k}, step_);
        products.sums = sums + vector * products.x_step;
        multiply_(products);
      }
    }
    finish(index, first, count, few_rows_ || by_line ? sums : transposed(sums, count));
  }

 private:
  // Of one product of the batch.
  struct Operands {
    Lines vectors;
    Lines lines;
  };

  int64_t lines() const { return few_rows_ ? problem_.N : problem_.M; }
  int64_t vectors() const { return few_rows_ ? problem_.M : problem_.N; }
  int64_t tasks_of_product() const { return divide_up(lines(), task_lines_); }

  Operands operands(int64_t index) const {
    const OperandOffsets at = offsets_of_product(product_.view, index);
    const Lines a{element(product_.a, at.a), a_transposed(problem_.layout) ? 1 : problem_.lda,
                  a_transposed(problem_.layout) ? problem_.lda : 1};
    const Lines b{element(product_.b, at.b), b_transposed(problem_.layout) ? problem_.ldb : 1,
                  b_transposed(problem_.layout) ? 1 : problem_.ldb};
    return few_rows_ ? Operands{a, b} : Operands{b, a};
  }

  const void* element(const void* data, int64_t index) const {
    return static_cast<const std::byte*>(data) + index * bytes_per_element(problem_.dtype);
  }

  // Vectors from `first` on, numbers from k on, as float32: `step` from one vector to the next.
  struct Part {
    int64_t first;
    int64_t count;
    int64_t k;
    int64_t length;
  };
  const float* read_vectors(const Lines& x, const Part& part, int64_t step) const {
    float* wide = float_workspace(Workspace::a, kCachedElements);
    for (int64_t i = 0; i < part.count; ++i) {
      const void* from = element(x.data, (part.first + i) * x.line_stride + part.k * x.k_stride);
      float* to = wide + i * step;
      if (problem_.dtype == Dtype::float32) {
        for (int64_t j = 0; j < part.length; ++j) {
          to[j] = static_cast<const float*>(from)[j * x.k_stride];
        }
      } else {
        widen(static_cast<const uint16_t*>(from), x.k_stride, part.length, to);
      }
    }
    return wide;
  }

  // Sums of lines [first, first + count) and all vectors, as D holds them.
  void finish(int64_t index, int64_t first, int64_t count, float* sums) const {
    const int64_t row = index * problem_.M;
    const Region region = few_rows_ ? Region{row, vectors(), first, count} : Region{row + first, count, 0, vectors()};
    product_.epilogue.finish(region, sums, region.columns, product_.epilogue.epilogue.alpha);
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

  float* transposed(const float* sums, int64_t count) const {
    float* rows = float_workspace(Workspace::b, count * vectors());
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < vectors(); ++j) {
        rows[i * vectors() + j] = sums[j * count + i];
      }
    }
    return rows;
  }

  const CpuProduct& product_;
  const Problem& problem_;
  bool few_rows_;
  bool dots_;
  int64_t step_;
  int64_t task_lines_;
  LineKernel multiply_;
};

// A vector of float32 is for BLAS, while the matrix may still be in a cache from the last time. We ask memory earlier.
bool suits_blas(const Problem& problem) {
  constexpr int64_t kCachedBytes = 32 << 20;
  const bool vector = problem.dtype == Dtype::float32 && (problem.M == 1 || problem.N == 1);
  const int64_t bytes = std::max(problem.M, problem.N) * problem.K * bytes_per_element(problem.dtype);
  return vector && bytes < kCachedBytes;
}

bool suits_dots(const Problem& problem) {
  return !suits_blas(problem) && (dots_of_rows(problem) || dots_of_columns(problem));
}

bool suits_updates(const Problem& problem) { return updates_of_rows(problem) || updates_of_columns(problem); }

}  // namespace

bool suits_lines(const Problem& problem) {
  return type_kernels(problem.dtype) != nullptr && problem.K >= kLeastK &&
         (suits_dots(problem) || suits_updates(problem));
}

void multiply_lines(const CpuProduct& product) {
  const int threads = threads_for(product.view.problem);
  const LineGemm gemm(product, suits_dots(product.view.problem), threads);
  parallel_for(gemm.tasks(), threads, [&](int64_t task) { gemm.run(task); });
}

}  // namespace mlx_gemm
