#include "csrc/metal_host/multiply_tile.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "csrc/metal_host/half.h"
#include "csrc/metal_host/micro_kernel_table.h"

namespace metal_host {

namespace {

// One step along K: its packed right panel (256 x 32 floats) stays in the first-level cache.
constexpr int kStepK = 256;
// Rows of a right operand that are packed into all panels before the next: each may be in another page.
constexpr int kPackedRows = 8;

struct Isa {
  const char* name;
  MicroKernel multiply;
};

// Test builds lower this to run the micro-kernels of lesser CPUs: 2 AVX-512, 1 AVX2, 0 portable.
#ifndef METAL_HOST_MAX_ISA
#define METAL_HOST_MAX_ISA 2
#endif

Isa detect_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (METAL_HOST_MAX_ISA >= 2 && __builtin_cpu_supports("avx512f")) {
    return {"AVX-512", micro_kernel_avx512};
  }
  if (METAL_HOST_MAX_ISA >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {"AVX2", micro_kernel_avx2};
  }
#endif
#if defined(__aarch64__)
  return {"NEON", micro_kernel_portable};  // vectors of four floats are its registers
#else
  return {"portable", micro_kernel_portable};
#endif
}

const Isa& isa() {
  static const Isa detected = detect_isa();
  return detected;
}

// A matrix operand with its element type erased by the reader: element (row, col) is data[row * row_stride + col *
// col_stride].
struct Source {
  const void* data;
  Element element;
  long row_stride;
  long col_stride;
  bool truncate;  // relaxed_precision on float: keep 11 significant bits
};

Source source_of(const TensorView& view, bool transposed, bool relaxed) {
  const bool truncate = relaxed && view.element == Element::float32;
  return {view.data, view.element, transposed ? 1 : view.stride, transposed ? view.stride : 1, truncate};
}

float to_float(float value) { return value; }

struct HalfBits {
  uint16_t bits;
};
struct BfloatBits {
  uint16_t bits;
};
float to_float(HalfBits value) { return float_from_half_bits(value.bits); }
float to_float(BfloatBits value) { return float_from_bfloat_bits(value.bits); }

float truncate(float value) { return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffffe000u); }

// Reports the elements [rows] x [cols] as the contiguous runs that they are in memory.
void observe(const AccessObserver& observer, const Source& source, int rows, int cols) {
  if (!observer) {
    return;
  }
  const bool row_major = source.col_stride == 1;
  const int runs = row_major ? rows : cols;
  const size_t run_bytes = size_t(row_major ? cols : rows) * element_bytes(source.element);
  const long stride = row_major ? source.row_stride : source.col_stride;
  for (int i = 0; i < runs; ++i) {
    observer(static_cast<const std::byte*>(source.data) + size_t(i * stride) * element_bytes(source.element), run_bytes,
             false);
  }
}

template <class T>
void pack(const Source& source, int rows, int cols, int width, float* packed) {
  const auto* data = static_cast<const T*>(source.data);
  for (int row = 0; row < rows; ++row) {
    const T* from = data + row * source.row_stride;
    float* to = packed + row * width;
    if (source.col_stride == 1) {
      for (int col = 0; col < cols; ++col) {
        to[col] = to_float(from[col]);
      }
    } else {
      for (int col = 0; col < cols; ++col) {
        to[col] = to_float(from[col * source.col_stride]);
      }
    }
    if (source.truncate) {
      for (int col = 0; col < cols; ++col) {
        to[col] = truncate(to[col]);
      }
    }
    std::fill(to + cols, to + width, 0.0f);
  }
}

// Rows of `width` floats, the last columns zero.
void pack_any(const Source& source, int rows, int cols, int width, float* packed) {
  switch (source.element) {
    case Element::float32:
      pack<float>(source, rows, cols, width, packed);
      break;
    case Element::float16:
      pack<HalfBits>(source, rows, cols, width, packed);
      break;
    case Element::bfloat16:
      pack<BfloatBits>(source, rows, cols, width, packed);
      break;
  }
}

Source offset(Source source, int row, int col) {
  const long elements = row * source.row_stride + col * source.col_stride;
  source.data = static_cast<const std::byte*>(source.data) + size_t(elements) * element_bytes(source.element);
  return source;
}

// The float tile that the product accumulates in: the destination itself, or a copy of one of another type or width.
class Accumulator {
 public:
  Accumulator(const TileProduct& product, const AccessObserver& observer)
      : product_(product), observer_(observer), out_(product.call.destination) {
    const bool whole_panels = product.cols % kPanelColumns == 0;
    in_place_ = out_.element == Element::float32 && whole_panels;
    ld_ = in_place_ ? out_.stride : (product.cols + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
    if (!in_place_) {
      copy_.resize(size_t(product.rows) * size_t(ld_));
    }
    data_ = in_place_ ? static_cast<float*>(out_.data) : copy_.data();
    for (int row = 0; row < product.rows; ++row) {
      initialise(row);
    }
  }

  float* data() { return data_; }
  long ld() const { return ld_; }

  void finish() {
    for (int row = 0; row < product_.rows; ++row) {
      observe_row(row, true);
      if (!in_place_) {
        write_back(row);
      }
    }
  }

 private:
  void initialise(int row) {
    float* to = data_ + row * ld_;
    if (!product_.call.accumulate) {
      if (product_.k == 0) {
        std::fill(to, to + product_.cols, 0.0f);
      }
      return;
    }
    observe_row(row, false);
    if (!in_place_) {
      const Source from{out_.data, out_.element, out_.stride, 1, false};
      pack_any(offset(from, row, 0), 1, product_.cols, int(ld_), to);
    }
  }

  void write_back(int row) {
    const float* from = data_ + row * ld_;
    for (int col = 0; col < product_.cols; ++col) {
      const long at = row * out_.stride + col;
      switch (out_.element) {
        case Element::float32:
          static_cast<float*>(out_.data)[at] = from[col];
          break;
        case Element::float16:
          static_cast<uint16_t*>(out_.data)[at] = half_bits(from[col]);
          break;
        case Element::bfloat16:
          static_cast<uint16_t*>(out_.data)[at] = bfloat_bits(from[col]);
          break;
      }
    }
  }

  void observe_row(int row, bool write) const {
    if (observer_ && !out_.cooperative) {
      const size_t bytes = element_bytes(out_.element);
      observer_(static_cast<const std::byte*>(out_.data) + size_t(row * out_.stride) * bytes,
                size_t(product_.cols) * bytes, write);
    }
  }

  const TileProduct& product_;
  const AccessObserver& observer_;
  const TensorView& out_;
  bool in_place_;
  long ld_;
  float* data_;
  std::vector<float> copy_;
};

// Part of a right operand for one panel: rows [k0, k0 + step), columns from n0 on.
struct PanelPart {
  int k0;
  int step;
  int n0;
  int n;  // columns of the operand
};

void pack_panel(const Source& right, const PanelPart& part, float* to) {
  pack_any(offset(right, part.k0, part.n0), part.step, std::min(kPanelColumns, part.n - part.n0), kPanelColumns, to);
}

// All of a right operand [k, n], panels in the order in which they are multiplied.
const float* packed_operand(const Source& right, int k, int n, PackedOperands& kept) {
  const PackedOperands::Key key{right.data, right.element, right.row_stride, right.col_stride, right.truncate, k, n};
  if (const float* found = kept.find(key)) {
    return found;
  }
  const int panels = (n + kPanelColumns - 1) / kPanelColumns;
  float* const packed = kept.add(key, size_t(k) * size_t(panels) * kPanelColumns);
  float* to = packed;
  for (int k0 = 0; packed != nullptr && k0 < k; k0 += kStepK) {
    const int step = std::min(kStepK, k - k0);
    for (int row = 0; row < step; row += kPackedRows) {
      for (int panel = 0; panel < panels; ++panel) {
        const PanelPart part{k0 + row, std::min(kPackedRows, step - row), panel * kPanelColumns, n};
        pack_panel(right, part, to + (panel * step + row) * kPanelColumns);
      }
    }
    to += panels * step * kPanelColumns;
  }
  return packed;
}

}  // namespace

const float* PackedOperands::find(const Key& key) const {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  return found == entries_.end() ? nullptr : found->values();
}

float* PackedOperands::add(const Key& key, size_t floats) {
  // The columns of a tile over K = 8192, for instance.
  constexpr size_t kMostFloats = size_t(1) << 20;
  if (floats > kMostFloats) {
    return nullptr;
  }
  for (; floats_ + floats > kMostFloats; entries_.pop_front()) {
    floats_ -= entries_.front().floats;
  }
  floats_ += floats;
  entries_.push_back({key, floats, aligned_bytes(floats * sizeof(float))});
  return entries_.back().values();
}

const char* micro_kernel_isa() { return isa().name; }

void multiply_tile(const TileProduct& product, const AccessObserver& observer, PackedOperands* kept) {
  const MatmulCall& call = product.call;
  const Source left = source_of(call.left, call.transpose_left, call.relaxed);
  const Source right = source_of(call.right, call.transpose_right, call.relaxed);
  observe(observer, left, product.m, product.k);
  observe(observer, right, product.k, product.n);

  Accumulator acc(product, observer);
  const float* packed = kept == nullptr ? nullptr : packed_operand(right, product.k, product.n, *kept);
  // Plain float rows are read where they are; anything else is converted step by step.
  const bool left_in_place = left.element == Element::float32 && !left.truncate;
  thread_local std::vector<float> panel;
  thread_local std::vector<float> left_rows;
  panel.resize(size_t(kStepK) * kPanelColumns);
  for (int k0 = 0; k0 < product.k; k0 += kStepK) {
    const int step = std::min(kStepK, product.k - k0);
    if (!left_in_place) {
      left_rows.resize(size_t(product.m) * kStepK);
      pack_any(offset(left, 0, k0), product.m, step, kStepK, left_rows.data());
    }
    for (int n0 = 0; n0 < product.n; n0 += kPanelColumns) {
      MicroTile tile{};
      tile.a = left_in_place ? static_cast<const float*>(offset(left, 0, k0).data) : left_rows.data();
      tile.a_row = left_in_place ? left.row_stride : kStepK;
      tile.a_k = left_in_place ? left.col_stride : 1;
      if (packed != nullptr) {
        tile.b = packed;
        packed += step * kPanelColumns;
        tile.next = packed;
      } else {
        pack_panel(right, {k0, step, n0, product.n}, panel.data());
        tile.b = panel.data();
        tile.next = panel.data();
      }
      tile.c = acc.data() + n0;
      tile.ldc = acc.ld();
      tile.rows = product.m;
      tile.k = step;
      tile.accumulate = call.accumulate || k0 > 0;
      isa().multiply(tile);
    }
  }
  acc.finish();
}

}  // namespace metal_host
