#include <immintrin.h>

#include "csrc/backends/cpu/bfloat_panels.h"

namespace mlx_gemm {
namespace {

constexpr int kVectors = 16;  // rows of a block that is transposed: 16 pairs of k each

// The least magnitude seen, zeros left out.
class Least {
 public:
  void see(__m512i values) {
    const __m512i magnitudes = _mm512_and_si512(values, _mm512_set1_epi16(0x7fff));
    // One less turns zero into the largest number.
    less_one_ = _mm512_min_epu16(less_one_, _mm512_sub_epi16(magnitudes, _mm512_set1_epi16(1)));
  }

  uint16_t value() const {
    alignas(64) uint16_t lanes[32];
    _mm512_store_si512(lanes, less_one_);
    uint16_t least = 0xffff;
    for (const uint16_t lane : lanes) {
      least = lane < least ? lane : least;
    }
    return least == 0xffff ? least : uint16_t(least + 1);
  }

 private:
  __m512i less_one_ = _mm512_set1_epi16(-1);
};

// `count` numbers, at most 32, then zeros; none where it is not positive.
__m512i load(const uint16_t* from, int64_t count, Least& least) {
  if (count <= 0) {
    return _mm512_setzero_si512();
  }
  const __m512i values =
      count >= 32 ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi16((__mmask32(1) << count) - 1, from);
  least.see(values);
  return values;
}

// Rows k and k + 1, 32 numbers each, as pairs: those of the first 16 lines, and of the others.
struct Pairs {
  __m512i first;
  __m512i second;
};

Pairs interleave(__m512i even, __m512i odd) {
  // unpack works within 128 bits: bring the halves of each line's quarter there first.
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  const __m512i x = _mm512_permutexvar_epi64(order, even);
  const __m512i y = _mm512_permutexvar_epi64(order, odd);
  return {_mm512_unpacklo_epi16(x, y), _mm512_unpackhi_epi16(x, y)};
}

// 16 x 16 numbers of 32 bits.
void transpose(__m512i (&rows)[kVectors]) {
  __m512i half[kVectors];
  for (int i = 0; i < kVectors; i += 2) {
    half[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    half[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  __m512i quarter[kVectors];
  for (int i = 0; i < kVectors; i += 4) {
    quarter[i] = _mm512_unpacklo_epi64(half[i], half[i + 2]);
    quarter[i + 1] = _mm512_unpackhi_epi64(half[i], half[i + 2]);
    quarter[i + 2] = _mm512_unpacklo_epi64(half[i + 1], half[i + 3]);
    quarter[i + 3] = _mm512_unpackhi_epi64(half[i + 1], half[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i even_low = _mm512_shuffle_i32x4(quarter[i], quarter[i + 4], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(quarter[i], quarter[i + 4], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(quarter[i + 8], quarter[i + 12], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(quarter[i + 8], quarter[i + 12], 0xdd);
    rows[i] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    rows[i + 4] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    rows[i + 12] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

// Calls step(k of the step, where it goes in the panel).
template <class STEP>
void for_steps(const PanelSource& source, uint16_t* panel, const STEP& step) {
  for (int64_t k = 0; k < source.k; k += kPanelStep, panel += kPanelStepElements) {
    step(k, panel);
  }
}

uint16_t pack_a_of_k(const PanelSource& source, uint16_t* panel) {
  Least least;
  for_steps(source, panel, [&](int64_t k, uint16_t* to) {
    for (int64_t line = 0; line < kPanelLines; ++line) {
      const int64_t count = line < source.lines ? source.k - k : 0;
      _mm_prefetch(source.data + line * source.ld + k + 2 * kPanelStep, _MM_HINT_T0);
      _mm512_storeu_si512(to + line * kPanelStep, load(source.data + line * source.ld + k, count, least));
    }
  });
  return least.value();
}

uint16_t pack_b_of_k(const PanelSource& source, uint16_t* panel) {
  Least least;
  for_steps(source, panel, [&](int64_t k, uint16_t* to) {
    for (int64_t first = 0; first < kPanelLines; first += kVectors) {
      __m512i block[kVectors];
      for (int i = 0; i < kVectors; ++i) {
        const int64_t line = first + i;
        const int64_t count = line < source.lines ? source.k - k : 0;
        block[i] = load(source.data + line * source.ld + k, count, least);
      }
      transpose(block);
      for (int pair = 0; pair < kVectors; ++pair) {
        _mm512_storeu_si512(to + (pair * kPanelLines + first) * 2, block[pair]);
      }
    }
  });
  return least.value();
}

uint16_t least(const PanelSource& source) {
  Least least;
  for (int64_t line = 0; line < source.lines; ++line) {
    for (int64_t k = 0; k < source.k; k += kPanelStep) {
      load(source.data + line * source.ld + k, source.k - k, least);
    }
  }
  return least.value();
}

// Rows k and k + 1 of a line-contiguous source.
Pairs load_pairs(const PanelSource& source, int64_t k, Least& least) {
  // Each row is in another page, so the CPU does not guess the next.
  _mm_prefetch(source.data + (k + kPanelStep) * source.ld, _MM_HINT_T0);
  _mm_prefetch(source.data + (k + kPanelStep + 1) * source.ld, _MM_HINT_T0);
  const __m512i even = load(source.data + k * source.ld, k < source.k ? source.lines : 0, least);
  const __m512i odd = load(source.data + (k + 1) * source.ld, k + 1 < source.k ? source.lines : 0, least);
  return interleave(even, odd);
}

uint16_t pack_b_of_lines(const PanelSource& source, uint16_t* panel) {
  Least least;
  for_steps(source, panel, [&](int64_t k, uint16_t* to) {
    for (int64_t pair = 0; pair < kVectors; ++pair) {
      const Pairs pairs = load_pairs(source, k + 2 * pair, least);
      _mm512_storeu_si512(to + pair * kPanelLines * 2, pairs.first);
      _mm512_storeu_si512(to + pair * kPanelLines * 2 + 32, pairs.second);
    }
  });
  return least.value();
}

uint16_t pack_a_of_lines(const PanelSource& source, uint16_t* panel) {
  Least least;
  for_steps(source, panel, [&](int64_t k, uint16_t* to) {
    __m512i first[kVectors];
    __m512i second[kVectors];
    for (int64_t pair = 0; pair < kVectors; ++pair) {
      const Pairs pairs = load_pairs(source, k + 2 * pair, least);
      first[pair] = pairs.first;
      second[pair] = pairs.second;
    }
    transpose(first);
    transpose(second);
    for (int line = 0; line < kVectors; ++line) {
      _mm512_storeu_si512(to + line * kPanelStep, first[line]);
      _mm512_storeu_si512(to + (kVectors + line) * kPanelStep, second[line]);
    }
  });
  return least.value();
}

// ROWS x 32 sums stay in registers while k advances.
template <int ROWS>
void multiply_rows(PanelRows a, const uint16_t* b, int64_t steps, bool accumulate, float* sums) {
  __m512 acc[ROWS][2];
  for (int row = 0; row < ROWS; ++row) {
    for (int half = 0; half < 2; ++half) {
      const float* from = sums + row * kPanelLines + half * 16;
      acc[row][half] = accumulate ? _mm512_loadu_ps(from) : _mm512_setzero_ps();
    }
  }
  for (int64_t step = 0; step < steps; ++step) {
    for (int pair = 0; pair < kVectors; ++pair) {
      const __m512bh left = (__m512bh)_mm512_loadu_si512(b + pair * kPanelLines * 2);
      const __m512bh right = (__m512bh)_mm512_loadu_si512(b + pair * kPanelLines * 2 + 32);
      for (int row = 0; row < ROWS; ++row) {
        int32_t bits;
        __builtin_memcpy(&bits, a.data + row * a.row + 2 * pair, sizeof bits);
        const __m512bh both = (__m512bh)_mm512_set1_epi32(bits);
        acc[row][0] = _mm512_dpbf16_ps(acc[row][0], both, left);
        acc[row][1] = _mm512_dpbf16_ps(acc[row][1], both, right);
      }
    }
    a.data += a.step;
    b += kPanelStepElements;
  }
  for (int row = 0; row < ROWS; ++row) {
    _mm512_storeu_ps(sums + row * kPanelLines, acc[row][0]);
    _mm512_storeu_ps(sums + row * kPanelLines + 16, acc[row][1]);
  }
}

void multiply(const PanelProduct& product) {
  constexpr int kRows = 8;
  for (int64_t first = 0; first < product.steps; first += kCachedSteps) {
    const int64_t left = product.steps - first;
    const int64_t steps = left < kCachedSteps ? left : kCachedSteps;
    const uint16_t* b = product.b + first * kPanelStepElements;
    for (int64_t tile = 0; tile < product.tiles; ++tile) {
      float* sums = product.sums + tile * kPanelLines * kPanelLines;
      for (int64_t row = 0; row < kPanelLines; row += kRows) {
        PanelRows a = product.a;
        a.data += tile * a.tile + first * a.step + row * a.row;
        multiply_rows<kRows>(a, b, steps, product.accumulate || first > 0, sums + row * kPanelLines);
      }
    }
  }
}

}  // namespace

const PanelKernels kAvx512PanelKernels = {pack_a_of_k, pack_a_of_lines, pack_b_of_k, pack_b_of_lines,
                                          least,       multiply,        false};

}  // namespace mlx_gemm
