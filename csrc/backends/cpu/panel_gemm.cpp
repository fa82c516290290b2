#include "csrc/backends/cpu/panel_gemm.h"

#include <algorithm>
#include <vector>

#include "csrc/backends/cpu/bfloat_panels.h"
#include "csrc/backends/cpu/workspace.h"
#include "csrc/thread_pool.h"

namespace mlx_gemm {
namespace {

// Below this a third or more of a panel is padding, and packing is most of the work.
constexpr int64_t kLeastLines = 16;
// A panel has all of K.
constexpr int64_t kLongestK = 1 << 16;
// Packed columns of B at a time, shared by all threads.
constexpr int64_t kSharedElements = 4 << 20;
// Packed rows of A at a time, in the second-level cache of the thread that packed them.
constexpr int64_t kStripElements = 1 << 18;
constexpr int64_t kMostStripPanels = 8;

// Of a panel of B: they stay in the first-level cache for all the panels of a strip.
constexpr int64_t kCachedSteps = 8;

int64_t divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

// Every sum of products of A and B is a multiple of the products of their least bits. While that is no denormal number,
// no sum is.
bool may_underflow(uint16_t least_a, uint16_t least_b) {
  constexpr int kFractionBits = 7;
  constexpr int kBias = 127;
  constexpr int kLeastExponent = -126;
  const int a = least_a >> kFractionBits;  // 0: denormal
  const int b = least_b >> kFractionBits;
  return a == 0 || b == 0 || a + b - 2 * (kBias + kFractionBits) < kLeastExponent;
}

template <class Body>
void for_each(int64_t count, bool parallel, const Body& body) {
  if (parallel) {
    parallel_for(count, body);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    body(i);
  }
}

// One product of a batch.
class PanelGemm {
 public:
  PanelGemm(const CpuProduct& product, int64_t index, int threads)
      : product_(product),
        problem_(product.view.problem),
        kernels_(*panel_kernels()),
        index_(index),
        threads_(threads),
        steps_(divide_up(problem_.K, kPanelStep)),
        panel_elements_(steps_ * kPanelStepElements) {
    const OperandOffsets at = offsets_of(product.view, index);
    a_ = static_cast<const uint16_t*>(product.a) + at.a;
    b_ = static_cast<const uint16_t*>(product.b) + at.b;
  }

  void run() {
    const int64_t panels = divide_up(problem_.N, kPanelLines);
    const int64_t panels_at_once = std::clamp<int64_t>(kSharedElements / panel_elements_, 1, panels);
    const int64_t strip_panels = panels_per_strip();
    const int64_t strip_rows = strip_panels * kPanelLines;
    least_b_.resize(static_cast<size_t>(panels_at_once));
    for (int64_t first = 0; first < panels; first += panels_at_once) {
      const int64_t count = std::min(panels_at_once, panels - first);
      panels_b_ = static_cast<uint16_t*>(workspace(Workspace::b_panels, count * panel_elements_ * 2));
      for_each(count, threads_ > 1, [&](int64_t i) { pack_b(first + i, i); });
      for_each(divide_up(problem_.M, strip_rows), threads_ > 1,
               [&](int64_t strip) { multiply_strip(strip * strip_rows, strip_panels, first, count); });
    }
  }

 private:
  // As many as the cache holds, and few enough for every thread to have as many strips.
  int64_t panels_per_strip() const {
    const int64_t panels = divide_up(problem_.M, kPanelLines);
    const int64_t cached = std::clamp<int64_t>(kStripElements / panel_elements_, 1, kMostStripPanels);
    const int64_t strips = divide_up(divide_up(panels, cached), threads_) * threads_;
    return divide_up(panels, strips);
  }

  void pack_b(int64_t panel, int64_t slot) {
    const bool of_k = b_transposed(problem_.layout);
    const int64_t column = panel * kPanelLines;
    const PanelSource source{b_ + (of_k ? column * problem_.ldb : column), problem_.ldb,
                             std::min(kPanelLines, problem_.N - column), problem_.K};
    const auto pack = of_k ? kernels_.pack_b_of_k : kernels_.pack_b_of_lines;
    least_b_[static_cast<size_t>(slot)] = pack(source, panels_b_ + slot * panel_elements_);
  }

  uint16_t pack_a(int64_t row, int64_t panels, uint16_t* packed) const {
    const bool of_k = !a_transposed(problem_.layout);
    const auto pack = of_k ? kernels_.pack_a_of_k : kernels_.pack_a_of_lines;
    uint16_t least = 0xffff;
    for (int64_t i = 0; i < panels; ++i, row += kPanelLines) {
      const PanelSource source{a_ + (of_k ? row * problem_.lda : row), problem_.lda,
                               std::min(kPanelLines, problem_.M - row), problem_.K};
      least = std::min(least, pack(source, packed + i * panel_elements_));
    }
    return least;
  }

  void multiply_strip(int64_t row, int64_t most_panels, int64_t first_panel, int64_t count) const {
    const int64_t rows = std::min(most_panels * kPanelLines, problem_.M - row);
    const int64_t tiles = divide_up(rows, kPanelLines);
    auto* packed = static_cast<uint16_t*>(workspace(Workspace::a_panels, tiles * panel_elements_ * 2));
    const uint16_t least_a = pack_a(row, tiles, packed);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t column = (first_panel + i) * kPanelLines;
      const int64_t columns = std::min(kPanelLines, problem_.N - column);
      if (may_underflow(least_a, least_b_[static_cast<size_t>(i)])) {
        multiply_block(product_, {index_, row, rows, column, columns});
        continue;
      }
      float* sums = float_workspace(Workspace::sums, tiles * kPanelLines * kPanelLines);
      for (int64_t step = 0; step < steps_; step += kCachedSteps) {
        const int64_t at = step * kPanelStepElements;
        kernels_.multiply({.a = packed + at,
                           .a_stride = panel_elements_,
                           .tiles = tiles,
                           .b = panels_b_ + i * panel_elements_ + at,
                           .steps = std::min(kCachedSteps, steps_ - step),
                           .sums = sums,
                           .accumulate = step > 0});
      }
      const CpuEpilogue& epilogue = product_.epilogue;
      epilogue.finish({index_ * problem_.M + row, rows, column, columns}, sums, kPanelLines, epilogue.epilogue.alpha);
    }
  }

  const CpuProduct& product_;
  const Problem& problem_;
  const PanelKernels& kernels_;
  int64_t index_;
  int threads_;
  int64_t steps_;
  int64_t panel_elements_;
  const uint16_t* a_;
  const uint16_t* b_;
  uint16_t* panels_b_ = nullptr;
  std::vector<uint16_t> least_b_;
};

}  // namespace

bool suits_panels(const Problem& problem) {
  return problem.dtype == Dtype::bfloat16 && panel_kernels() != nullptr && problem.M >= kLeastLines &&
         problem.N >= kLeastLines && problem.K <= kLongestK;
}

void multiply_panels(const CpuProduct& product) {
  const Problem& problem = product.view.problem;
  const int threads = threads_for(problem);
  // A batch is shared out by its products where there are enough of them.
  const bool by_product = problem.batch >= 4 * threads;
  for_each(problem.batch, by_product && threads > 1,
           [&](int64_t i) { PanelGemm(product, i, by_product ? 1 : threads).run(); });
}

}  // namespace mlx_gemm
