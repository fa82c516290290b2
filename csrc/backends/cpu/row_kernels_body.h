// The row kernels for one vector width. Included by one source file per instruction set; everything has internal
// linkage, so that code for a newer CPU cannot replace another file's.
//
// Activations are computed from exp(x) and erfc(x), both as polynomials fitted to the least largest error (Lawson's
// iteration): exp within 2 units in the last place, erfc within 4e-8. tests/test_epilogue.py holds the bounds.
#pragma once

#include <cstring>
#include <utility>

#include "csrc/backends/cpu/row_kernels.h"

namespace mlx_gemm {
namespace {

// Part of a vector where there is no instruction for it.
struct PartsByCopy {
  template <class VECTOR, class T>
  static VECTOR load_part(const T* from, int64_t count) {
    VECTOR v{};
    std::memcpy(&v, from, static_cast<size_t>(count) * sizeof(T));
    return v;
  }

  template <class VECTOR, class T>
  static void store_part(const VECTOR& v, T* to, int64_t count) {
    std::memcpy(to, &v, static_cast<size_t>(count) * sizeof(T));
  }
};

// ARCH has kWidth, kSums (vectors of sums that fit the registers, at least 8), loads and stores of part of a vector,
// and the architecture's own conversions: widen and narrow of integers, which fit 16 bits, and widen_half and
// narrow_half.
template <class ARCH>
struct RowKernelsOf {
  static constexpr int kWidth = ARCH::kWidth;
  typedef float Floats __attribute__((vector_size(4 * kWidth)));
  typedef int32_t Ints __attribute__((vector_size(4 * kWidth)));
  typedef uint32_t Bits __attribute__((vector_size(4 * kWidth)));
  typedef uint16_t Halves __attribute__((vector_size(2 * kWidth)));

  // The first `count` numbers, then zeros.
  template <class VECTOR, class T>
  static VECTOR load(const T* from, int64_t count = kWidth) {
    if (count != kWidth) {
      return ARCH::template load_part<VECTOR>(from, count);
    }
    VECTOR v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }

  template <class VECTOR, class T>
  static void store(const VECTOR& v, T* to, int64_t count = kWidth) {
    if (count != kWidth) {
      ARCH::store_part(v, to, count);
    } else {
      std::memcpy(to, &v, sizeof v);
    }
  }

  // step(i, lanes) for a row of `count` numbers: whole vectors, where `lanes` is a constant, then what is left.
  template <class STEP>
  static void for_vectors(int64_t count, const STEP& step) {
    int64_t i = 0;
    for (; i + kWidth <= count; i += kWidth) {
      step(i, kWidth);
    }
    if (i < count) {
      step(i, count - i);
    }
  }

  template <class FUNCTION>
  static void transform(const FloatRows& x, const FUNCTION& function) {
    for (int64_t row = 0; row < x.rows; ++row) {
      float* data = x.data + row * x.ld;
      for_vectors(x.columns,
                  [&](int64_t i, int64_t lanes) { store(function(load<Floats>(data + i, lanes)), data + i, lanes); });
    }
  }

  // ---- Functions ----

  static Floats splat(float value) { return Floats{} + value; }

  template <int DEGREE>
  static Floats polynomial(Floats x, const float (&coefficients)[DEGREE + 1]) {
    Floats sum = splat(coefficients[DEGREE]);
    for (int i = DEGREE - 1; i >= 0; --i) {
      sum = sum * x + coefficients[i];
    }
    return sum;
  }

  // 0 below the least normal number, infinity above the largest.
  static Floats exp(Floats x) {
    constexpr float kLog2e = 1.44269504f;
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the last bits
    constexpr float kLn2High = 0.693359375f;
    constexpr float kLn2Low = -2.12194440e-4f;
    constexpr float kLargest = 88.7228f;
    constexpr float kLeast = -87.3365f;
    const Floats rounded = x * kLog2e + kRound;
    const Floats n = rounded - kRound;
    const Floats r = x - n * kLn2High - n * kLn2Low;
    const Floats tail =
        polynomial<4>(r, {0.5f, 0.16666512191295624f, 0.0416661873459816f, 0.008369598537683487f, 0.0013951719738543f});
    const Floats fraction = 1.0f + (r + r * r * tail);
    // In two factors, since 2^128 is no number.
    const Ints exponent = (Ints)rounded - (Ints)splat(kRound);
    const Ints half = exponent >> 1;
    const Floats first = (Floats)((half + 127) << 23);
    const Floats second = (Floats)((exponent - half + 127) << 23);
    Floats result = fraction * first * second;
    result = x > kLargest ? splat(__builtin_inff()) : result;
    result = x < kLeast ? Floats{} : result;
    return x == x ? result : x;
  }

  // Of |z|: erfc is 1 - erf, without its cancellation.
  static Floats erfc_of_magnitude(Floats magnitude) {
    constexpr float kFar = 10.0f;  // erfc is below the least normal number
    const Floats square = magnitude * magnitude;
    const Floats series =
        polynomial<6>(square, {0.12837916612625122f, -0.3761262595653534f, 0.11283600330352783f, -0.026854444295167923f,
                               0.005189535673707724f, -0.0008020842215046287f, 7.889122935011983e-05f});
    const Floats near = 1.0f - (magnitude + magnitude * series);
    const Floats exponent =
        polynomial<8>(magnitude, {-0.00013782228052150458f, 1.129381775856018f, 0.6335123777389526f,
                                  0.10823763161897659f, -0.02521134540438652f, 0.004273305647075176f,
                                  -0.0004807508084923029f, 3.116629522992298e-05f, -8.615983801973925e-07f});
    const Floats far = magnitude > kFar ? Floats{} : exp(-exponent);
    return magnitude < 1.0f ? near : far;
  }

  static Floats relu(Floats x) { return x < 0.0f ? Floats{} : x; }

  static Floats gelu(Floats x) {
    constexpr float kSqrtHalf = 0.70710678f;
    const Floats magnitude = (Floats)((Bits)x & 0x7fffffffu);
    const Floats tail = 0.5f * erfc_of_magnitude(magnitude * kSqrtHalf);
    return x * (x < 0.0f ? tail : 1.0f - tail);
  }

  static Floats silu(Floats x) { return x / (1.0f + exp(-x)); }

  // (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)).
  static Floats gelu_tanh(Floats x) {
    constexpr float kTwiceScale = 1.5957691216f;  // 2 sqrt(2 / pi)
    return x / (1.0f + exp(-kTwiceScale * (x + 0.044715f * x * x * x)));
  }

  // ---- Numbers in memory, by their type ----

  struct Float {
    using Stored = float;
    static Floats read(const float* from, int64_t lanes) { return load<Floats>(from, lanes); }
  };
  struct Half {
    using Stored = uint16_t;
    static Floats read(const uint16_t* from, int64_t lanes) {
      return ARCH::template widen_half<Floats>(load<Halves>(from, lanes));
    }
  };
  struct Bfloat {
    using Stored = uint16_t;
    static Floats read(const uint16_t* from, int64_t lanes) {
      return (Floats)(ARCH::template widen<Bits>(load<Halves>(from, lanes)) << 16);
    }
  };

  template <class NUMBER>
  static void widen(const uint16_t* from, int64_t count, float* to) {
    for_vectors(count, [&](int64_t i, int64_t lanes) { store(NUMBER::read(from + i, lanes), to + i, lanes); });
  }

  // ---- Float32 copies of matrices ----

  // Numbers of x and y in turns, from the one at FIRST on. Compilers make it one shuffle.
  template <int FIRST, class VECTOR, int... LANE>
  static VECTOR interleave(VECTOR x, VECTOR y, std::integer_sequence<int, LANE...>) {
    return VECTOR{(LANE % 2 == 0 ? x[FIRST + LANE / 2] : y[FIRST + LANE / 2])...};
  }

  static constexpr auto kLanes = std::make_integer_sequence<int, kWidth>();

  // In log2(kWidth) steps, each of which halves the distance between the numbers of a column.
  static void transpose(Floats (&rows)[kWidth]) {
    for (int width = 1; width < kWidth; width *= 2) {
      Floats next[kWidth];
      for (int i = 0; i < kWidth / 2; ++i) {
        next[2 * i] = interleave<0>(rows[i], rows[i + kWidth / 2], kLanes);
        next[2 * i + 1] = interleave<kWidth / 2>(rows[i], rows[i + kWidth / 2], kLanes);
      }
      std::memcpy(rows, next, sizeof next);
    }
  }

  // Rows that lie far apart: each is in another page, so the CPU does not guess the next.
  static constexpr int64_t kRowsAhead = 16;

  template <class NUMBER>
  static void pack(const Rows& from, float* to, int64_t ld) {
    const int64_t whole = from.columns / kWidth * kWidth;
    const int64_t filled = divide_up(from.columns, kPackedMultiple) * kPackedMultiple;
    for (int64_t row = 0; row < from.rows; ++row) {
      const auto* x = static_cast<const typename NUMBER::Stored*>(from.data) + row * from.ld;
      float* y = to + row * ld;
      for (int64_t i = 0; i < whole; i += kWidth) {
        __builtin_prefetch(x + i + kRowsAhead * from.ld);
        store(NUMBER::read(x + i, kWidth), y + i);
      }
      for (int64_t i = whole; i < filled; i += kWidth) {
        store(i < from.columns ? NUMBER::read(x + i, from.columns - i) : Floats{}, y + i);
      }
    }
  }

  template <class NUMBER>
  static void pack_transposed(const Rows& from, float* to, int64_t ld) {
    const int64_t filled = divide_up(from.rows, kPackedMultiple) * kPackedMultiple;
    const auto* data = static_cast<const typename NUMBER::Stored*>(from.data);
    for (int64_t column = 0; column < from.columns; column += kWidth) {
      const int64_t columns = least(kWidth, from.columns - column);
      for (int64_t row = 0; row < filled; row += kWidth) {
        Floats block[kWidth] = {};
        for (int64_t i = 0; i < least(kWidth, from.rows - row); ++i) {
          block[i] = NUMBER::read(data + (row + i) * from.ld + column, columns);
        }
        transpose(block);
        for (int64_t i = 0; i < columns; ++i) {
          store(block[i], to + (column + i) * ld + row);
        }
      }
    }
  }

  static constexpr int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
  static constexpr int64_t divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

  // ---- Products of lines ----

  // VECTORS x LINES sums stay in registers while k advances.
  template <class NUMBER, int VECTORS, int LINES>
  static void multiply_block(const LineProducts& p, int64_t first) {
    constexpr int64_t kAhead = 1024 / sizeof(typename NUMBER::Stored);
    const auto* lines = static_cast<const typename NUMBER::Stored*>(p.lines) + first * p.ld;
    Floats acc[VECTORS][LINES] = {};
    for_vectors(p.k, [&](int64_t k, int64_t lanes) {
      Floats line[LINES];
      for (int i = 0; i < LINES; ++i) {
        line[i] = NUMBER::read(lines + i * p.ld + k, lanes);
        __builtin_prefetch(lines + i * p.ld + k + kAhead);
      }
      for (int j = 0; j < VECTORS; ++j) {
        const Floats x = load<Floats>(p.x + j * p.ldx + k, lanes);
        for (int i = 0; i < LINES; ++i) {
          acc[j][i] += x * line[i];
        }
      }
    });
    for (int j = 0; j < VECTORS; ++j) {
      for (int i = 0; i < LINES; ++i) {
        float& sum = p.sums[j * p.x_step + (first + i) * p.line_step];
        sum = (p.accumulate ? sum : 0.0f) + sum_of(acc[j][i]);
      }
    }
  }

  static float sum_of(Floats x) {
    float lanes[kWidth];
    store(x, lanes);
    for (int width = kWidth / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) {
        lanes[i] += lanes[i + width];
      }
    }
    return lanes[0];
  }

  template <class NUMBER, int VECTORS>
  static void multiply_lines(const LineProducts& p) {
    if (p.vectors < VECTORS) {
      if constexpr (VECTORS > 1) {
        multiply_lines<NUMBER, VECTORS - 1>(p);
      }
      return;
    }
    constexpr int kFit = ARCH::kSums / VECTORS;
    constexpr int kLines = kFit > 6 ? 6 : kFit;
    int64_t line = 0;
    for (; line + kLines <= p.count; line += kLines) {
      multiply_block<NUMBER, VECTORS, kLines>(p, line);
    }
    for (; line < p.count; ++line) {
      multiply_block<NUMBER, VECTORS, 1>(p, line);
    }
  }

  // ---- Sums of lines ----

  // VECTORS x WIDTH vectors of sums stay in registers while k advances. Only a single one may be partly filled.
  template <class NUMBER, int VECTORS, int WIDTH>
  static void update_block(const LineProducts& p, int64_t first, int64_t lanes) {
    constexpr int64_t kNumbers = kWidth * WIDTH;
    const auto* lines = static_cast<const typename NUMBER::Stored*>(p.lines) + first;
    Floats acc[VECTORS][WIDTH] = {};
    for (int64_t k = 0; k < p.k; ++k) {
      Floats line[WIDTH];
      for (int i = 0; i < WIDTH; ++i) {
        line[i] = NUMBER::read(lines + k * p.ld + i * kWidth, lanes);
        // Lines are too far apart for the CPU to guess that each goes on.
        __builtin_prefetch(lines + k * p.ld + i * kWidth + kNumbers);
      }
      for (int j = 0; j < VECTORS; ++j) {
        for (int i = 0; i < WIDTH; ++i) {
          acc[j][i] += p.x[j * p.ldx + k] * line[i];
        }
      }
    }
    for (int j = 0; j < VECTORS; ++j) {
      for (int i = 0; i < WIDTH; ++i) {
        float* sums = p.sums + j * p.x_step + first + i * kWidth;
        store(p.accumulate ? load<Floats>(sums, lanes) + acc[j][i] : acc[j][i], sums, lanes);
      }
    }
  }

  template <class NUMBER, int VECTORS>
  static void update(const LineProducts& p) {
    if (p.vectors < VECTORS) {
      if constexpr (VECTORS > 1) {
        update<NUMBER, VECTORS - 1>(p);
      }
      return;
    }
    constexpr int kFit = ARCH::kSums / VECTORS;
    update_from<NUMBER, VECTORS, (kFit > 8 ? 8 : kFit)>(p, 0);
  }

  template <class NUMBER, int VECTORS, int WIDTH>
  static void update_from(const LineProducts& p, int64_t first) {
    for (; first + WIDTH * kWidth <= p.count; first += WIDTH * kWidth) {
      update_block<NUMBER, VECTORS, WIDTH>(p, first, kWidth);
    }
    if constexpr (WIDTH > 1) {
      update_from<NUMBER, VECTORS, WIDTH / 2>(p, first);
    } else if (first < p.count) {
      update_block<NUMBER, VECTORS, 1>(p, first, p.count - first);
    }
  }

  // ---- The table's functions ----

  static Halves narrow_bfloat(Floats x) {
    const Bits bits = (Bits)x;
    const Bits rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    // Rounding could turn a NaN's payload into infinity.
    const Bits chosen = x == x ? rounded : (bits | 0x00400000u);
    return ARCH::template narrow<Halves>(chosen >> 16);
  }

  template <class NARROW>
  static void store_narrow(const FloatRows& from, uint16_t* to, int64_t ld, const NARROW& narrow) {
    for (int64_t row = 0; row < from.rows; ++row) {
      const float* x = from.data + row * from.ld;
      uint16_t* y = to + row * ld;
      for_vectors(from.columns,
                  [&](int64_t i, int64_t lanes) { store(narrow(load<Floats>(x + i, lanes)), y + i, lanes); });
    }
  }

  static void store_half(const FloatRows& from, uint16_t* to, int64_t ld) {
    store_narrow(from, to, ld, [](Floats x) { return ARCH::template narrow_half<Halves>(x); });
  }

  static void store_bfloat(const FloatRows& from, uint16_t* to, int64_t ld) {
    store_narrow(from, to, ld, [](Floats x) { return narrow_bfloat(x); });
  }

  static void scale(const FloatRows& x, float factor) {
    transform(x, [=](Floats v) { return v * factor; });
  }

  static void add(const FloatRows& x, const AddendRows& addend) {
    for (int64_t row = 0; row < x.rows; ++row) {
      float* data = x.data + row * x.ld;
      const float* y = addend.data + row * addend.row_stride;
      if (addend.column_stride == 1) {
        for_vectors(x.columns, [&](int64_t i, int64_t lanes) {
          store(load<Floats>(data + i, lanes) + addend.factor * load<Floats>(y + i, lanes), data + i, lanes);
        });
      } else {
        for (int64_t i = 0; i < x.columns; ++i) {
          data[i] += addend.factor * y[i * addend.column_stride];
        }
      }
    }
  }

  static void activate(const FloatRows& x, Activation activation) {
    switch (activation) {
      case Activation::none:
        break;
      case Activation::relu:
        transform(x, relu);
        break;
      case Activation::gelu:
        transform(x, gelu);
        break;
      case Activation::gelu_tanh:
        transform(x, gelu_tanh);
        break;
      case Activation::silu:
        transform(x, silu);
        break;
    }
  }

  template <class NUMBER>
  static constexpr TypeKernels kernels_of() {
    return {multiply_lines<NUMBER, kMostVectors>, update<NUMBER, kMostVectors>, pack<NUMBER>, pack_transposed<NUMBER>};
  }

  static constexpr RowKernels table() {
    return {widen<Half>,        widen<Bfloat>,        store_half, store_bfloat, kernels_of<Float>(),
            kernels_of<Half>(), kernels_of<Bfloat>(), scale,      add,          activate};
  }
};

}  // namespace
}  // namespace mlx_gemm
