#include "csrc/backends/cpu/float_panel_gemm.h"

#include <algorithm>

#include "csrc/backends/cpu/workspace.h"
#include "csrc/metal_host/micro_kernel_table.h"
#include "csrc/thread_pool.h"

namespace mlx_gemm {
namespace {

using metal_host::MicroKernel;

constexpr int64_t kColumns = metal_host::kPanelColumns;
// Below this a third or more of a panel is padding, and packing is most of the work.
constexpr int64_t kLeastLines = 16;
// A panel of so many numbers still fits the shared ones.
constexpr int64_t kLongestK = 1 << 16;
// The longest step along K, whose products are summed one after the other: a panel of B and the rows of A that meet it
// are read from the second-level cache at full speed.
constexpr int64_t kLongestStep = 512;
// All of A in the second-level cache.
constexpr int64_t kCachedElements = 1 << 18;
constexpr int64_t kCachedRows = 1024;
// Then: for whoever comes late to do less.
constexpr int64_t kTasksPerThread = 4;
// Rows of A otherwise: a step of them in that cache. A multiple of the rows that a micro-kernel keeps in registers.
constexpr int64_t kStripRows = 336;
constexpr int64_t kRowMultiple = 12;
constexpr int64_t kStripElements = 1 << 20;
// Where all of B is in that cache: few enough for their results to be there too.
constexpr int64_t kShortStripRows = 48;
// Packed columns of B at a time, shared by all threads, and sums beside them.
constexpr int64_t kSharedElements = 4 << 20;
constexpr int64_t kSharedColumns = 2048;
// Panels that are packed side by side, some rows of each, so that memory is read in longer pieces.
constexpr int64_t kGroupPanels = 8;
constexpr int64_t kGroupRows = 16;
// With fewer panels, rows are read where they are.
constexpr int64_t kWorthPacking = 16;

MicroKernel micro_kernel() {
#if defined(__x86_64__)
  if (cpu_isa() >= Isa::avx512) {
    return metal_host::micro_kernel_avx512;
  }
#endif
  return nullptr;
}

constexpr int64_t round_up(int64_t x, int64_t multiple) { return divide_up(x, multiple) * multiple; }

// All rows of A are packed at once: they stay in the cache, or are too few for threads to share panels of B, which go
// through memory.
bool keeps_rows(const Problem& problem) {
  const int64_t elements = problem.M * problem.K;
  return (problem.M <= kCachedRows && elements <= kCachedElements) ||
         (problem.M <= kStripRows && elements <= kStripElements);
}

// Between packed rows of A: not a power of two, which would put them into the same few lines of the first-level cache.
constexpr int64_t row_stride(int64_t k) { return round_up(k, kPackedMultiple) + kPackedMultiple / 2; }

// One product of a batch.
class FloatPanelGemm {
 public:
  FloatPanelGemm(const CpuProduct& product, int64_t index, int threads)
      : problem_(product.view.problem),
        epilogue_(product.epilogue),
        kernels_(*type_kernels(problem_.dtype)),
        multiply_(micro_kernel()),
        first_row_(index * problem_.M),
        threads_(threads),
        panels_(divide_up(problem_.N, kColumns)),
        step_(divide_up(problem_.K, divide_up(problem_.K, kLongestStep))) {
    const OperandOffsets at = offsets_of_product(product.view, index);
    a_ = {product.a, at.a, problem_.lda, !a_transposed(problem_.layout)};
    b_ = {product.b, at.b, problem_.ldb, b_transposed(problem_.layout)};
  }

  void run() {
    // Results that outweigh the operands stay in the cache when a thread has some whole rows of them.
    const bool mostly_results =
        b_cached() && problem_.N > 2 * problem_.K && problem_.M >= kTasksPerThread * threads_ * kRowMultiple;
    if (keeps_rows(problem_) && !mostly_results) {
      share_columns();
    } else {
      share_rows();
    }
  }

 private:
  // Lines are rows of A, columns of B.
  struct Operand {
    const void* data;
    int64_t first;  // element
    int64_t ld;
    bool of_k;  // K-contiguous
  };

  // Lines and a part of K.
  struct Part {
    int64_t line;
    int64_t lines;
    int64_t k;
    int64_t depth;
  };

  // Of A, a step along K.
  struct PackedRows {
    const float* data;
    int64_t ld;
  };

  // Panels of B that are multiplied together.
  struct Panels {
    int64_t first;
    int64_t count;
  };

  // All rows of A stay in the cache, each thread packs a panel of B when it meets them. With few panels some threads
  // pack the same, each for its own rows.
  void share_columns() const {
    const PackedRows all = all_rows();
    const int64_t blocks = threads_ == 1 ? 1 : divide_up(kTasksPerThread * threads_, panels_);
    const int64_t block = round_up(divide_up(problem_.M, blocks), kRowMultiple);
    const int64_t down = divide_up(problem_.M, block);
    parallel_for(panels_ * down, threads_, [&](int64_t task) {
      const int64_t panel = task / down;
      const int64_t row = task % down * block;
      const int64_t rows = std::min(block, problem_.M - row);
      float* packed = float_workspace(Workspace::b_panels, step_ * kColumns);
      for_steps([&](int64_t k, int64_t depth) {
        pack_columns({panel * kColumns, lines_of(panel), k, depth}, packed);
        multiply({all.data + row * all.ld + k, all.ld}, {row, rows, k, depth}, {panel, 1}, panel, packed, packed);
      });
    });
  }

  // Panels of B are packed once, each thread multiplies its strips of A by them.
  void share_rows() const {
    const int64_t at_once = std::clamp<int64_t>(kSharedElements / problem_.K / kColumns, 1, kSharedColumns / kColumns);
    const int64_t strip = strip_rows();
    for (int64_t first = 0; first < panels_; first += at_once) {
      const Panels panels{first, std::min(at_once, panels_ - first)};
      const float* shared = pack_panels(panels);
      parallel_for(divide_up(problem_.M, strip), threads_, [&](int64_t i) {
        const int64_t row = i * strip;
        multiply_strip(row, std::min(strip, problem_.M - row), panels, shared);
      });
    }
  }

  void multiply_strip(int64_t row, int64_t count, const Panels& panels, const float* shared) const {
    for_steps([&](int64_t k, int64_t depth) {
      const Part part{row, count, k, depth};
      const PackedRows rows = rows_of(part);
      const float* packed = shared + k * panels.count * kColumns;
      for (int64_t i = 0; i < panels.count; ++i) {
        const float* next = i + 1 < panels.count ? packed + depth * kColumns : packed;
        multiply(rows, part, panels, panels.first + i, packed, next);
        packed += depth * kColumns;
      }
    });
  }

  // body(k, depth) for every step along K.
  template <class BODY>
  void for_steps(const BODY& body) const {
    for (int64_t k = 0; k < problem_.K; k += step_) {
      body(k, std::min(step_, problem_.K - k));
    }
  }

  bool b_cached() const { return panels_ * kColumns * problem_.K <= kCachedElements; }

  // As few strips as the cache allows, as many for every thread.
  int64_t strip_rows() const {
    const int64_t most = b_cached() ? kShortStripRows : kStripRows;
    const int64_t strips = round_up(divide_up(problem_.M, most), threads_);
    return round_up(divide_up(problem_.M, strips), kRowMultiple);
  }

  int64_t lines_of(int64_t panel) const { return std::min(kColumns, problem_.N - panel * kColumns); }

  // [k][32] of the columns of a panel.
  void pack_columns(const Part& part, float* to) const { pack(b_, part, !b_.of_k, to, kColumns); }

  // Step by step along K the panels, one after the other.
  const float* pack_panels(const Panels& panels) const {
    float* shared = float_workspace(Workspace::shared_panels, panels.count * kColumns * problem_.K);
    const int64_t groups = divide_up(panels.count, kGroupPanels);
    parallel_for(groups * divide_up(problem_.K, step_), threads_, [&](int64_t task) {
      const int64_t k = task / groups * step_;
      const int64_t depth = std::min(step_, problem_.K - k);
      const int64_t first = task % groups * kGroupPanels;
      const int64_t last = std::min(first + kGroupPanels, panels.count);
      float* to = shared + k * panels.count * kColumns;
      const int64_t rows = b_.of_k ? depth : kGroupRows;
      for (int64_t row = 0; row < depth; row += rows) {
        for (int64_t i = first; i < last; ++i) {
          const int64_t panel = panels.first + i;
          pack_columns({panel * kColumns, lines_of(panel), k + row, std::min(rows, depth - row)},
                       to + (i * depth + row) * kColumns);
        }
      }
    });
    return shared;
  }

  bool rows_in_place() const { return problem_.dtype == Dtype::float32 && a_.of_k && panels_ <= kWorthPacking; }

  PackedRows rows_where_they_are(int64_t row, int64_t k) const {
    return {static_cast<const float*>(a_.data) + a_.first + row * a_.ld + k, a_.ld};
  }

  PackedRows rows_of(const Part& part) const {
    if (rows_in_place()) {
      return rows_where_they_are(part.line, part.k);
    }
    const int64_t ld = row_stride(part.depth);
    float* to = float_workspace(Workspace::a, part.lines * ld);
    pack(a_, part, a_.of_k, to, ld);
    return {to, ld};
  }

  PackedRows all_rows() const {
    if (rows_in_place()) {
      return rows_where_they_are(0, 0);
    }
    const int64_t ld = row_stride(problem_.K);
    float* to = float_workspace(Workspace::shared_rows, problem_.M * ld);
    const int64_t rows = round_up(divide_up(problem_.M, threads_), kRowMultiple);
    parallel_for(divide_up(problem_.M, rows), threads_, [&](int64_t i) {
      const int64_t row = i * rows;
      pack(a_, {row, std::min(rows, problem_.M - row), 0, problem_.K}, a_.of_k, to + row * ld, ld);
    });
    return {to, ld};
  }

  // As the operand lies in memory, or transposed.
  void pack(const Operand& operand, const Part& part, bool as_it_lies, float* to, int64_t ld) const {
    const int64_t at = operand.of_k ? part.line * operand.ld + part.k : part.k * operand.ld + part.line;
    const auto* data =
        static_cast<const std::byte*>(operand.data) + (operand.first + at) * bytes_per_element(problem_.dtype);
    const int64_t rows = operand.of_k ? part.lines : part.depth;
    const int64_t columns = operand.of_k ? part.depth : part.lines;
    (as_it_lies ? kernels_.pack : kernels_.pack_transposed)({data, operand.ld, rows, columns}, to, ld);
  }

  // Adds a step of K to the sums of a panel: those in D itself where D is float32 and has all of its columns.
  void multiply(const PackedRows& rows, const Part& part, const Panels& panels, int64_t panel, const float* packed,
                const float* next) const {
    const int64_t columns = lines_of(panel);
    const Region region{first_row_ + part.line, part.lines, panel * kColumns, columns};
    const bool wide = epilogue_.dtype == Dtype::float32;
    const bool in_place = wide && columns == kColumns;
    float* sums = nullptr;
    int64_t ld = problem_.N;
    if (in_place) {
      sums = static_cast<float*>(epilogue_.at(region.row, region.column));
    } else {
      // Of float32, the last panel's alone.
      ld = wide ? kColumns : panels.count * kColumns;
      sums = float_workspace(Workspace::sums, part.lines * ld) + (wide ? 0 : (panel - panels.first) * kColumns);
    }
    multiply_({.a = rows.data,
               .a_row = rows.ld,
               .a_k = 1,
               .b = packed,
               .c = sums,
               .ldc = ld,
               .rows = static_cast<int>(part.lines),
               .k = static_cast<int>(part.depth),
               .accumulate = part.k > 0,
               .next = next});
    const bool last = part.k + part.depth == problem_.K;
    if (last && !(in_place && epilogue_.epilogue.is_identity())) {
      epilogue_.finish(region, sums, ld, epilogue_.epilogue.alpha);
    }
  }

  const Problem& problem_;
  const CpuEpilogue& epilogue_;
  const TypeKernels& kernels_;
  MicroKernel multiply_;
  int64_t first_row_;
  int threads_;
  int64_t panels_;
  int64_t step_;  // along K
  Operand a_;
  Operand b_;
};

// Small matrices, which OpenBLAS multiplies where they are unless B lies along K, and those whose B would be packed in
// several parts, for each of which A is packed again.
bool suits_blas(const Problem& problem) {
  constexpr int64_t kSmall = 1'000'000;
  const int64_t b_elements = problem.N * problem.K;
  const bool small = !b_transposed(problem.layout) && problem.M * b_elements <= kSmall;
  const bool large = !keeps_rows(problem) && b_elements > kSharedElements;
  return problem.dtype == Dtype::float32 && (small || large);
}

}  // namespace

bool suits_float_panels(const Problem& problem) {
  return type_kernels(problem.dtype) != nullptr && micro_kernel() != nullptr && problem.M >= kLeastLines &&
         problem.N >= kLeastLines && problem.K <= kLongestK && !suits_blas(problem);
}

void multiply_float_panels(const CpuProduct& product) {
  for_products(product.view.problem, [&](int64_t i, int threads) { FloatPanelGemm(product, i, threads).run(); });
}

}  // namespace mlx_gemm
