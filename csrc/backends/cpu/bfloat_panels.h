// Packed panels of bfloat16, and the micro-kernels that multiply them into float32.
//
// A panel holds 32 lines, rows of A or columns of B, and K in steps of 32, the rest zero:
//   A  [step][32 rows][32 k]            one tile register holds 16 rows of a step
//   B  [step][16 pairs of k][32 columns][2]
#pragma once

#include <cstdint>

namespace mlx_gemm {

constexpr int64_t kPanelLines = 32;
constexpr int64_t kPanelStep = 32;
constexpr int64_t kPanelStepElements = kPanelLines * kPanelStep;

// What becomes one panel.
struct PanelSource {
  const uint16_t* data;
  int64_t ld;
  int64_t lines;  // at most 32
  int64_t k;
};

// Where tiles of 32 rows of A lie: elements from one row, step along K and tile to the next.
struct PanelRows {
  const uint16_t* data;
  int64_t row;
  int64_t step;
  int64_t tile;
};

// Panels of A, one after the other.
constexpr PanelRows packed_rows(const uint16_t* panels, int64_t steps) {
  return {panels, kPanelStep, kPanelStepElements, steps * kPanelStepElements};
}

// Rows of A where they are, K-contiguous.
constexpr PanelRows rows_in_place(const uint16_t* data, int64_t ld) { return {data, ld, kPanelStep, kPanelLines * ld}; }

// sums[tiles * 32][32] (+)= tiles of A times one B panel.
struct PanelProduct {
  PanelRows a;
  int64_t tiles;
  const uint16_t* b;
  int64_t steps;  // of each tile and of the panel
  float* sums;
  bool accumulate = false;
};

// Steps at a time: those of B stay in the first-level cache for all tiles.
constexpr int64_t kCachedSteps = 8;

struct PanelKernels {
  // Return the least magnitude that is not zero, as bits; 0xffff where there is none. A source is K-contiguous (each
  // line lies in one piece, A in layout n and B in t) or line-contiguous.
  uint16_t (*pack_a_of_k)(const PanelSource& source, uint16_t* panel);
  uint16_t (*pack_a_of_lines)(const PanelSource& source, uint16_t* panel);
  uint16_t (*pack_b_of_k)(const PanelSource& source, uint16_t* panel);
  uint16_t (*pack_b_of_lines)(const PanelSource& source, uint16_t* panel);
  // The least magnitude alone, of a K-contiguous source.
  uint16_t (*least)(const PanelSource& source);
  // Takes denormal operands for zeros and makes denormal sums zeros.
  void (*multiply)(const PanelProduct& product);
  // Faster than memory, also for few columns.
  bool outruns_memory;
};

// Those of cpu_isa(); null where it has no products of bfloat16.
const PanelKernels* panel_kernels();

#if defined(__x86_64__)
extern const PanelKernels kAvx512PanelKernels;
void multiply_panels_amx(const PanelProduct& product);
#endif

}  // namespace mlx_gemm
