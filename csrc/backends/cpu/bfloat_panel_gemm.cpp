#include "csrc/backends/cpu/bfloat_panel_gemm.h"

#include <algorithm>
#include <array>
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
// Line-contiguous panels that are packed side by side, so that memory is read in longer pieces; steps at a time.
constexpr int64_t kGroupPanels = 8;
constexpr int64_t kGroupElements = 1 << 19;
constexpr int64_t kGroupSteps = 4;
// With fewer vectors than this, dot products keep up with memory.
constexpr int64_t kLeastVectors = 6;

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

// Few vectors against K-contiguous lines of the other operand: not packing those pays.
bool has_thin_rows(const Problem& problem) {
  return problem.M >= kLeastVectors && problem.M <= kPanelLines && b_transposed(problem.layout);
}
bool has_thin_columns(const Problem& problem) {
  return problem.N >= kLeastVectors && problem.N <= kPanelLines && !a_transposed(problem.layout);
}

// One product of a batch.
class BfloatPanelGemm {
 public:
  BfloatPanelGemm(const CpuProduct& product, int64_t index, int threads)
      : product_(product),
        problem_(product.view.problem),
        kernels_(*panel_kernels()),
        index_(index),
        threads_(threads),
        steps_(divide_up(problem_.K, kPanelStep)),
        panel_elements_(steps_ * kPanelStepElements) {
    const OperandOffsets at = offsets_of_product(product.view, index);
    a_ = {static_cast<const uint16_t*>(product.a) + at.a, problem_.lda, problem_.M, !a_transposed(problem_.layout)};
    b_ = {static_cast<const uint16_t*>(product.b) + at.b, problem_.ldb, problem_.N, b_transposed(problem_.layout)};
  }

  void run() {
    const int64_t rows = divide_up(problem_.M, kPanelLines);
    const bool fits = rows <= kMostStripPanels && rows * panel_elements_ <= kStripElements;
    if (kernels_.outruns_memory && has_thin_rows(problem_)) {
      share_few(a_, b_);
    } else if (kernels_.outruns_memory && has_thin_columns(problem_)) {
      share_few(b_, a_);
    } else if (fits && problem_.N >= 2 * kPanelLines * threads_) {
      share_rows();
    } else {
      share_columns();
    }
  }

 private:
  // Rows of A, or columns of B.
  struct Operand {
    const uint16_t* data;
    int64_t ld;
    int64_t lines;
    bool of_k;  // K-contiguous
  };

  using Pack = uint16_t (*)(const PanelSource& source, uint16_t* panel);

  // Of an operand: the first, and how many.
  struct Panels {
    int64_t first;
    int64_t count;
  };

  // Panels and what they hold.
  struct Packed {
    const uint16_t* panels;
    uint16_t least;  // magnitude that is not zero
    int64_t first;   // line
    int64_t lines;
  };

  // K-contiguous lines of an operand, where they are.
  struct Lines {
    const uint16_t* data;
    int64_t ld;
    int64_t count;
  };

  // Few rows or columns: all threads use them packed, each reads its own lines of the other operand in place.
  void share_few(const Operand& few, const Operand& many) const {
    const bool few_rows = &few == &a_;
    Packed packed;
    pack(few, packer_of_b(few), {0, 1}, panels_in(Workspace::b_panels, 1), &packed);
    for_strips(many.lines, [&](int64_t first, int64_t count) {
      const Lines lines{many.data + first * many.ld, many.ld, count};
      const Block block =
          few_rows ? Block{index_, 0, few.lines, first, count} : Block{index_, first, count, 0, few.lines};
      if (may_underflow(least_of(lines), packed.least)) {
        multiply_block(product_, block);
        return;
      }
      float* sums = multiply_in_place(lines, packed);
      if (few_rows) {
        finish(block, transposed(sums, count, few.lines), count);
      } else {
        finish(block, sums, kPanelLines);
      }
    });
  }

  // [columns][rows] of the first columns of sums[rows][32].
  static float* transposed(const float* sums, int64_t rows, int64_t columns) {
    float* to = float_workspace(Workspace::a, rows * columns);
    for (int64_t i = 0; i < columns; ++i) {
      for (int64_t j = 0; j < rows; ++j) {
        to[i * rows + j] = sums[j * kPanelLines + i];
      }
    }
    return to;
  }

  // body(first, count) for strips that stay in the second-level cache between the look at their least magnitude and
  // the product.
  template <class BODY>
  void for_strips(int64_t lines, const BODY& body) const {
    const int64_t strip = std::clamp<int64_t>(kStripElements / panel_elements_, 1, kMostStripPanels) * kPanelLines;
    parallel_for(divide_up(lines, strip), threads_,
                 [&](int64_t i) { body(i * strip, std::min(strip, lines - i * strip)); });
  }

  uint16_t least_of(const Lines& lines) const {
    return kernels_.least({lines.data, lines.ld, lines.count, problem_.K});
  }

  // [lines][32]: the product with one packed panel. What does not fill tiles of 32 x 32 is packed after all.
  float* multiply_in_place(const Lines& lines, const Packed& columns) const {
    const int64_t tiles = lines.count / kPanelLines;
    const int64_t whole_steps = problem_.K / kPanelStep;
    const int64_t whole_k = whole_steps * kPanelStep;
    float* sums = float_workspace(Workspace::sums, (tiles + 1) * kPanelLines * kPanelLines);
    uint16_t* panel = panels_in(Workspace::a_panels, 1);
    if (whole_steps > 0 && tiles > 0) {
      kernels_.multiply({.a = rows_in_place(lines.data, lines.ld),
                         .tiles = tiles,
                         .b = columns.panels,
                         .steps = whole_steps,
                         .sums = sums});
    }
    for (int64_t tile = 0; tile < tiles && whole_k < problem_.K; ++tile) {
      const uint16_t* data = lines.data + tile * kPanelLines * lines.ld + whole_k;
      kernels_.pack_a_of_k({data, lines.ld, kPanelLines, problem_.K - whole_k}, panel);
      kernels_.multiply({.a = packed_rows(panel, 1),
                         .tiles = 1,
                         .b = columns.panels + whole_steps * kPanelStepElements,
                         .steps = 1,
                         .sums = sums + tile * kPanelLines * kPanelLines,
                         .accumulate = whole_steps > 0});
    }
    if (const int64_t left = lines.count - tiles * kPanelLines; left > 0) {
      kernels_.pack_a_of_k({lines.data + tiles * kPanelLines * lines.ld, lines.ld, left, problem_.K}, panel);
      kernels_.multiply({.a = packed_rows(panel, steps_),
                         .tiles = 1,
                         .b = columns.panels,
                         .steps = steps_,
                         .sums = sums + tiles * kPanelLines * kPanelLines});
    }
    return sums;
  }

  // Few rows: all threads use the packed A, each packs its own columns of B.
  void share_rows() const {
    const Packed rows = pack_strip({0, divide_up(problem_.M, kPanelLines)});
    for_groups({0, divide_up(problem_.N, kPanelLines)}, [&](const Panels& group) {
      std::array<Packed, kGroupPanels> columns;
      pack(b_, packer_of_b(b_), group, panels_in(Workspace::b_panels, group.count), columns.data());
      for (int64_t i = 0; i < group.count; ++i) {
        multiply(rows, columns[static_cast<size_t>(i)]);
      }
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
      uint16_t* packed = panels_in(Workspace::b_panels, count);
      for_groups({first, count}, [&](const Panels& group) {
        const int64_t at = group.first - first;
        pack(b_, packer_of_b(b_), group, packed + at * panel_elements_, columns.data() + at);
      });
      const int64_t row_panels = divide_up(problem_.M, kPanelLines);
      parallel_for(divide_up(row_panels, strip_panels), threads_, [&](int64_t strip) {
        const int64_t panel = strip * strip_panels;
        const Packed rows = pack_strip({panel, std::min(strip_panels, row_panels - panel)});
        for (int64_t i = 0; i < count; ++i) {
          multiply(rows, columns[static_cast<size_t>(i)]);
        }
      });
    }
  }

  // body(group) for groups of some panels, enough of them for every thread.
  template <class BODY>
  void for_groups(const Panels& all, const BODY& body) const {
    const int64_t cached = std::clamp<int64_t>(kGroupElements / panel_elements_, 1, kGroupPanels);
    const int64_t group = std::min(cached, divide_up(all.count, threads_));
    parallel_for(divide_up(all.count, group), threads_,
                 [&](int64_t i) { body(Panels{all.first + i * group, std::min(group, all.count - i * group)}); });
  }

  // As many as the cache holds, and few enough for every thread to have as many strips.
  int64_t panels_per_strip() const {
    const int64_t panels = divide_up(problem_.M, kPanelLines);
    const int64_t cached = std::clamp<int64_t>(kStripElements / panel_elements_, 1, kMostStripPanels);
    const int64_t strips = divide_up(divide_up(panels, cached), threads_) * threads_;
    return divide_up(panels, strips);
  }

  uint16_t* panels_in(Workspace buffer, int64_t count) const {
    return static_cast<uint16_t*>(workspace(buffer, count * panel_elements_ * 2));
  }

  Pack packer_of_b(const Operand& operand) const {
    return operand.of_k ? kernels_.pack_b_of_k : kernels_.pack_b_of_lines;
  }

  // Some panels of an operand, and what each of them holds. Line-contiguous ones are packed side by side.
  void pack(const Operand& operand, Pack pack_one, const Panels& panels, uint16_t* to, Packed* packed) const {
    const int64_t depth = operand.of_k ? problem_.K : kGroupSteps * kPanelStep;
    for (int64_t i = 0; i < panels.count; ++i) {
      const int64_t line = (panels.first + i) * kPanelLines;
      packed[i] = {to + i * panel_elements_, 0xffff, line, std::min(kPanelLines, operand.lines - line)};
    }
    for (int64_t k = 0; k < problem_.K; k += depth) {
      for (int64_t i = 0; i < panels.count; ++i) {
        const int64_t line = packed[i].first;
        const int64_t at = operand.of_k ? line * operand.ld + k : k * operand.ld + line;
        const PanelSource source{operand.data + at, operand.ld, packed[i].lines, std::min(depth, problem_.K - k)};
        const uint16_t least = pack_one(source, to + i * panel_elements_ + k * kPanelLines);
        packed[i].least = std::min(packed[i].least, least);
      }
    }
  }

  // Panels of A, at most kMostStripPanels, as one.
  Packed pack_strip(const Panels& panels) const {
    std::array<Packed, kMostStripPanels> each;
    uint16_t* to = panels_in(Workspace::a_panels, panels.count);
    pack(a_, a_.of_k ? kernels_.pack_a_of_k : kernels_.pack_a_of_lines, panels, to, each.data());
    Packed strip = each.front();
    for (int64_t i = 1; i < panels.count; ++i) {
      strip.least = std::min(strip.least, each[static_cast<size_t>(i)].least);
      strip.lines += each[static_cast<size_t>(i)].lines;
    }
    return strip;
  }

  void multiply(const Packed& rows, const Packed& columns) const {
    const Block block{index_, rows.first, rows.lines, columns.first, columns.lines};
    if (may_underflow(rows.least, columns.least)) {
      multiply_block(product_, block);
      return;
    }
    const int64_t tiles = divide_up(rows.lines, kPanelLines);
    float* sums = float_workspace(Workspace::sums, tiles * kPanelLines * kPanelLines);
    kernels_.multiply(
        {.a = packed_rows(rows.panels, steps_), .tiles = tiles, .b = columns.panels, .steps = steps_, .sums = sums});
    finish(block, sums, kPanelLines);
  }

  void finish(const Block& block, float* sums, int64_t ld) const {
    const CpuEpilogue& epilogue = product_.epilogue;
    epilogue.finish({block.product * problem_.M + block.row, block.rows, block.column, block.columns}, sums, ld,
                    epilogue.epilogue.alpha);
  }

  const CpuProduct& product_;
  const Problem& problem_;
  const PanelKernels& kernels_;
  int64_t index_;
  int threads_;
  int64_t steps_;
  int64_t panel_elements_;
  Operand a_;
  Operand b_;
};

}  // namespace

bool suits_bfloat_panels(const Problem& problem) {
  if (problem.dtype != Dtype::bfloat16 || panel_kernels() == nullptr || problem.K > kLongestK) {
    return false;
  }
  const bool thin = has_thin_rows(problem) || has_thin_columns(problem);
  return (problem.M >= kLeastLines && problem.N >= kLeastLines) || (thin && panel_kernels()->outruns_memory);
}

void multiply_bfloat_panels(const CpuProduct& product) {
  for_products(product.view.problem, [&](int64_t i, int threads) { BfloatPanelGemm(product, i, threads).run(); });
}

}  // namespace mlx_gemm
