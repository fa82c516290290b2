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
    const OperandOffsets at = offsets_of_product(product.view, index);
    a_ = static_cast<const uint16_t*>(product.a) + at.a;
    b_ = static_cast<const uint16_t*>(product.b) + at.b;
  }

  void run() {
    const int64_t rows = divide_up(problem_.M, kPanelLines);
    const bool fits = rows <= kMostStripPanels && rows * panel_elements_ <= kStripElements;
    if (fits && problem_.N >= 2 * kPanelLines * threads_) {
      share_rows();
    } else {
      share_columns();
    }
  }

 private:
  // Panels and what they hold.
  struct Packed {
    const uint16_t* panels;
    uint16_t least;  // magnitude that is not zero
    int64_t first;   // row or column
    int64_t lines;
  };

  // Few rows: all threads use the packed A, each packs its own columns of B.
  void share_rows() const {
    const int64_t panels = divide_up(problem_.M, kPanelLines);
    const Packed rows = pack_a(0, panels);
    for_each(divide_up(problem_.N, kPanelLines), threads_ > 1, [&](int64_t panel) {
      multiply(rows, pack_b(panel, static_cast<uint16_t*>(workspace(Workspace::b_panels, panel_elements_ * 2))));
    });
  }

  // All threads use the packed B, each packs its own strips of A.
  void share_columns() const {
    const int64_t panels = divide_up(problem_.N, kPanelLines);
    const int64_t panels_at_once = std::clamp<int64_t>(kSharedElements / panel_elements_, 1, panels);
    const int64_t strip_panels = panels_per_strip();
    std::vector<Packed> columns(static_cast<size_t>(panels_at_once));
    for (int64_t first = 0; first < panels; first += panels_at_once) {
      const int64_t count = std::min(panels_at_once, panels - first);
      auto* packed = static_cast<uint16_t*>(workspace(Workspace::b_panels, count * panel_elements_ * 2));
      for_each(count, threads_ > 1,
               [&](int64_t i) { columns[static_cast<size_t>(i)] = pack_b(first + i, packed + i * panel_elements_); });
      for_each(divide_up(problem_.M, strip_panels * kPanelLines), threads_ > 1, [&](int64_t strip) {
        const Packed rows = pack_a(strip * strip_panels * kPanelLines, strip_panels);
        for (int64_t i = 0; i < count; ++i) {
          multiply(rows, columns[static_cast<size_t>(i)]);
        }
      });
    }
  }

  // As many as the cache holds, and few enough for every thread to have as many strips.
  int64_t panels_per_strip() const {
    const int64_t panels = divide_up(problem_.M, kPanelLines);
    const int64_t cached = std::clamp<int64_t>(kStripElements / panel_elements_, 1, kMostStripPanels);
    const int64_t strips = divide_up(divide_up(panels, cached), threads_) * threads_;
    return divide_up(panels, strips);
  }

  Packed pack_b(int64_t panel, uint16_t* to) const {
    const bool of_k = b_transposed(problem_.layout);
    const int64_t column = panel * kPanelLines;
    const PanelSource source{b_ + (of_k ? column * problem_.ldb : column), problem_.ldb,
                             std::min(kPanelLines, problem_.N - column), problem_.K};
    const auto pack = of_k ? kernels_.pack_b_of_k : kernels_.pack_b_of_lines;
    return {to, pack(source, to), column, source.lines};
  }

  Packed pack_a(int64_t row, int64_t most_panels) const {
    const bool of_k = !a_transposed(problem_.layout);
    const auto pack = of_k ? kernels_.pack_a_of_k : kernels_.pack_a_of_lines;
    const int64_t rows = std::min(most_panels * kPanelLines, problem_.M - row);
    auto* to =
        static_cast<uint16_t*>(workspace(Workspace::a_panels, divide_up(rows, kPanelLines) * panel_elements_ * 2));
    Packed packed{to, 0xffff, row, rows};
    for (int64_t done = 0; done < rows; done += kPanelLines, to += panel_elements_) {
      const int64_t at = row + done;
      const PanelSource source{a_ + (of_k ? at * problem_.lda : at), problem_.lda, std::min(kPanelLines, rows - done),
                               problem_.K};
      packed.least = std::min(packed.least, pack(source, to));
    }
    return packed;
  }

  void multiply(const Packed& rows, const Packed& columns) const {
    if (may_underflow(rows.least, columns.least)) {
      multiply_block(product_, {index_, rows.first, rows.lines, columns.first, columns.lines});
      return;
    }
    const int64_t tiles = divide_up(rows.lines, kPanelLines);
    float* sums = float_workspace(Workspace::sums, tiles * kPanelLines * kPanelLines);
    kernels_.multiply({.a = rows.panels, .tiles = tiles, .b = columns.panels, .steps = steps_, .sums = sums});
    const CpuEpilogue& epilogue = product_.epilogue;
    epilogue.finish({index_ * problem_.M + rows.first, rows.lines, columns.first, columns.lines}, sums, kPanelLines,
                    epilogue.epilogue.alpha);
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
