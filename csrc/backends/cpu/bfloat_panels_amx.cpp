#include <immintrin.h>

#include "csrc/backends/cpu/bfloat_panels.h"

namespace mlx_gemm {
namespace {

// The operand of ldtilecfg: rows and bytes per row of each tile register.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Part of a product: `steps` from `first` on.
struct Part {
  int64_t first;
  int64_t steps;
};

constexpr int kLineBytes = 64;
constexpr int kRowBytesB = 128;
constexpr int kRowBytesSums = 128;

// Four accumulators of 16 x 16: each tile of A and of B is loaded once and used twice.
void multiply_part(const PanelProduct& product, const Part& part) {
  const uint16_t* const first_b = product.b + part.first * kPanelStepElements;
  // What follows of B comes from the third-level cache: each tile asks for its share, while B itself is in the first.
  const int lines_ahead = static_cast<int>(kPanelStepElements) * 2 / kLineBytes / static_cast<int>(product.tiles);
  const auto* ahead = reinterpret_cast<const char*>(first_b + part.steps * kPanelStepElements);
  const auto row_bytes = static_cast<size_t>(product.a.row) * sizeof(uint16_t);
  for (int64_t tile = 0; tile < product.tiles; ++tile) {
    const uint16_t* a = product.a.data + tile * product.a.tile + part.first * product.a.step;
    const uint16_t* b = first_b;
    float* sums = product.sums + tile * kPanelLines * kPanelLines;
    if (product.accumulate || part.first > 0) {
      _tile_loadd(0, sums, kRowBytesSums);
      _tile_loadd(1, sums + 16, kRowBytesSums);
      _tile_loadd(2, sums + 16 * kPanelLines, kRowBytesSums);
      _tile_loadd(3, sums + 16 * kPanelLines + 16, kRowBytesSums);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    for (int64_t step = 0; step < part.steps; ++step) {
      for (int line = 0; line < lines_ahead; ++line, ahead += kLineBytes) {
        _mm_prefetch(ahead, _MM_HINT_T1);
      }
      _tile_loadd(4, a, row_bytes);
      _tile_loadd(6, b, kRowBytesB);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + 2 * 16, kRowBytesB);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a + 16 * product.a.row, row_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      a += product.a.step;
      b += kPanelStepElements;
    }
    _tile_stored(0, sums, kRowBytesSums);
    _tile_stored(1, sums + 16, kRowBytesSums);
    _tile_stored(2, sums + 16 * kPanelLines, kRowBytesSums);
    _tile_stored(3, sums + 16 * kPanelLines + 16, kRowBytesSums);
  }
}

}  // namespace

void multiply_panels_amx(const PanelProduct& product) {
  const TileConfiguration configuration;
  _tile_loadconfig(&configuration);
  for (int64_t first = 0; first < product.steps; first += kCachedSteps) {
    const int64_t left = product.steps - first;
    multiply_part(product, {first, left < kCachedSteps ? left : kCachedSteps});
  }
  _tile_release();
}

}  // namespace mlx_gemm
