// Checks the CPU backend's inner loops, of every instruction set that this CPU has, and the thread pool. Exits 1 when a
// result is wrong.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "csrc/backends/cpu/bfloat_panels.h"
#include "csrc/backends/cpu/row_kernels.h"
#include "csrc/metal_host/half.h"
#include "csrc/thread_pool.h"

namespace {

using namespace mlx_gemm;

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (!holds) {
    std::printf("wrong: %s\n", what.c_str());
    ++failures;
  }
}

// Rounding error of float32, per operation.
constexpr double kUnit = 0x1p-24;

std::vector<float> normals(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

// ---- Row kernels ----

bool same(float x, float y) { return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y); }

void check_conversions(const RowKernels& kernels, const std::string& isa) {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = uint16_t(i);
  }
  std::vector<float> half(all.size());
  std::vector<float> bfloat(all.size());
  // Odd lengths: the last numbers do not fill a vector.
  constexpr int64_t kParts[] = {0, 1, 4, 21, 40000, 65536};
  for (size_t part = 1; part < std::size(kParts); ++part) {
    const int64_t from = kParts[part - 1];
    kernels.widen_half(all.data() + from, kParts[part] - from, half.data() + from);
    kernels.widen_bfloat(all.data() + from, kParts[part] - from, bfloat.data() + from);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const float exact = metal_host::float_from_half_bits(all[i]);
    expect(std::isnan(exact) ? std::isnan(half[i]) : same(half[i], exact), isa + " widens half " + std::to_string(i));
    expect(same(bfloat[i], metal_host::float_from_bfloat_bits(all[i])), isa + " widens bfloat " + std::to_string(i));
  }

  constexpr int64_t kRows = 97;
  constexpr int64_t kColumns = 53;
  constexpr int64_t kLd = 60;
  std::mt19937 random(1);
  std::vector<float> x(kRows * kLd);
  std::generate(x.begin(), x.end(), [&] { return std::bit_cast<float>(uint32_t(random())); });
  x[0] = std::numeric_limits<float>::quiet_NaN();
  x[1] = std::bit_cast<float>(0x7f800001u);  // a NaN whose payload rounding would carry into infinity
  x[2] = -std::numeric_limits<float>::infinity();
  x[3] = 65520.0f;
  x[4] = 0x1p-25f;
  std::vector<uint16_t> stored_half(x.size(), 0x5555);
  std::vector<uint16_t> stored_bfloat(x.size(), 0x5555);
  const FloatRows rows{x.data(), kLd, kRows, kColumns};
  kernels.store_half(rows, stored_half.data(), kLd);
  kernels.store_bfloat(rows, stored_bfloat.data(), kLd);
  for (size_t i = 0; i < x.size(); ++i) {
    const bool inside = int64_t(i) % kLd < kColumns;
    if (inside && std::isnan(x[i])) {
      expect(std::isnan(metal_host::float_from_half_bits(stored_half[i])), isa + " keeps NaN in half");
      expect(std::isnan(metal_host::float_from_bfloat_bits(stored_bfloat[i])), isa + " keeps NaN in bfloat");
      continue;
    }
    const std::string at = " at " + std::to_string(i);
    expect(stored_half[i] == (inside ? metal_host::half_bits(x[i]) : 0x5555), isa + " stores half" + at);
    expect(stored_bfloat[i] == (inside ? metal_host::bfloat_bits(x[i]) : 0x5555), isa + " stores bfloat" + at);
  }
}

void check_epilogue(const RowKernels& kernels, const std::string& isa) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kColumns = 37;
  constexpr int64_t kLd = 41;
  const std::vector<float> given = normals(kRows * kLd, 2);
  const std::vector<float> addend = normals(kRows * kLd * 2, 3);
  for (const auto [row_stride, column_stride] : {std::pair(kLd, int64_t(1)), {0, 1}, {1, 0}, {2 * kLd, 2}}) {
    std::vector<float> x = given;
    kernels.scale({x.data(), kLd, kRows, kColumns}, 0.5f);
    kernels.add({x.data(), kLd, kRows, kColumns}, {addend.data(), row_stride, column_stride, -3.0f});
    for (int64_t i = 0; i < kRows * kLd; ++i) {
      const int64_t row = i / kLd;
      const int64_t column = i % kLd;
      const double added = addend[size_t(row * row_stride + column * column_stride)];
      const double exact = column < kColumns ? 0.5 * given[size_t(i)] - 3.0 * added : given[size_t(i)];
      expect(std::abs(x[size_t(i)] - exact) <= 4 * kUnit * (std::abs(exact) + 3 * std::abs(added)),
             isa + " adds at " + std::to_string(i));
    }
  }
}

void check_activations(const RowKernels& kernels, const std::string& isa) {
  const struct {
    Activation activation;
    std::function<double(double)> exact;
  } cases[] = {
      {Activation::none, [](double x) { return x; }},
      {Activation::relu, [](double x) { return std::max(x, 0.0); }},
      {Activation::gelu, [](double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; }},
      {Activation::gelu_tanh,
       [](double x) { return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
      {Activation::silu, [](double x) { return x / (1 + std::exp(-x)); }},
  };
  std::vector<float> given;
  for (float x = 0x1p-140f; x < 200; x = std::max(x * 1.01f, x + 0x1p-148f)) {
    given.push_back(x);
    given.push_back(-x);
  }
  for (const auto& [activation, exact] : cases) {
    std::vector<float> x = given;
    kernels.activate({x.data(), int64_t(x.size()), 1, int64_t(x.size())}, activation);
    for (size_t i = 0; i < x.size(); ++i) {
      const double error = std::abs(x[i] - exact(given[i]));
      expect(error <= 4 * kUnit * std::abs(given[i]) + 1e-36,
             isa + " " + to_string(activation) + " of " + std::to_string(given[i]));
    }
  }
}

// `sum` started from one; then came so many terms.
template <class TERM>
void expect_sum(float sum, int64_t terms, const TERM& term, const std::string& what) {
  double exact = 1;
  double magnitude = 1;
  for (int64_t j = 0; j < terms; ++j) {
    exact += term(j);
    magnitude += std::abs(term(j));
  }
  expect(std::abs(sum - exact) <= 4 * std::sqrt(terms) * kUnit * magnitude, what);
}

void check_lines(const RowKernels& kernels, const std::string& isa) {
  for (const auto [vectors, count, k] : {std::tuple(1, 1, 1), {8, 17, 130}, {3, 7, 64}, {5, 13, 37}, {2, 6, 16}}) {
    const int64_t ld = k + 3;
    const std::vector<float> x = normals(size_t(vectors * ld), 4);
    const std::vector<float> lines = normals(size_t(count * ld), 5);
    std::vector<float> sums(size_t(vectors * count), 1.0f);
    kernels.floats.dots({.lines = lines.data(),
                         .ld = ld,
                         .count = count,
                         .x = x.data(),
                         .ldx = ld,
                         .vectors = vectors,
                         .k = k,
                         .sums = sums.data(),
                         .line_step = 1,
                         .x_step = count,
                         .accumulate = true});
    for (int64_t i = 0; i < vectors * count; ++i) {
      const float* vector = x.data() + i / count * ld;
      const float* line = lines.data() + i % count * ld;
      const auto term = [&](int64_t j) { return double(vector[j]) * double(line[j]); };
      expect_sum(sums[size_t(i)], k, term, isa + " multiplies lines, " + std::to_string(i));
    }
  }
}

void check_updates(const RowKernels& kernels, const std::string& isa) {
  for (const auto [vectors, count, k] : {std::tuple(1, 1, 1), {8, 17, 130}, {3, 300, 64}, {5, 131, 37}, {2, 128, 16}}) {
    const int64_t ld = count + 3;
    const std::vector<float> x = normals(size_t(vectors * k), 4);
    const std::vector<float> lines = normals(size_t(k * ld), 5);
    std::vector<float> sums(size_t(vectors * ld), 1.0f);
    kernels.floats.updates({.lines = lines.data(),
                            .ld = ld,
                            .count = count,
                            .x = x.data(),
                            .ldx = k,
                            .vectors = vectors,
                            .k = k,
                            .sums = sums.data(),
                            .line_step = 1,
                            .x_step = ld,
                            .accumulate = true});
    for (int64_t i = 0; i < vectors * ld; ++i) {
      const float* vector = x.data() + i / ld * k;
      const float* column = lines.data() + i % ld;
      const auto term = [&](int64_t j) { return double(vector[j]) * double(column[j * ld]); };
      const int64_t terms = i % ld < count ? k : 0;  // none beyond the lines
      expect_sum(sums[size_t(i)], terms, term, isa + " updates sums, " + std::to_string(i));
    }
  }
}

// ---- Float32 copies ----

// Numbers of the source count up; what is read beyond it, and what should not be written, is the guard.
template <class T, class NARROW>
void check_copies(const TypeKernels& kernels, const NARROW& narrow, const std::string& type) {
  constexpr float kGuard = -1.0f;
  for (const auto [rows, columns] : {std::pair(1, 1), {5, 33}, {16, 16}, {31, 100}, {64, 48}, {40, 7}}) {
    const int64_t ld = columns + 3;
    std::vector<T> source(size_t(rows * ld), narrow(kGuard));
    for (int64_t i = 0; i < rows * columns; ++i) {
      source[size_t(i / columns * ld + i % columns)] = narrow(float(i % 251));
    }
    for (const bool transposed : {false, true}) {
      const int64_t to_rows = transposed ? columns : rows;
      const int64_t to_columns = transposed ? rows : columns;
      const int64_t filled = (to_columns + kPackedMultiple - 1) / kPackedMultiple * kPackedMultiple;
      const int64_t to_ld = filled + 16;
      std::vector<float> to(size_t(to_rows * to_ld), kGuard);
      (transposed ? kernels.pack_transposed : kernels.pack)({source.data(), ld, rows, columns}, to.data(), to_ld);
      for (int64_t i = 0; i < to_rows * to_ld; ++i) {
        const int64_t row = i / to_ld;
        const int64_t column = i % to_ld;
        const int64_t number = transposed ? column * columns + row : row * columns + column;
        const float exact = column < to_columns ? float(number % 251) : column < filled ? 0.0f : kGuard;
        expect(same(to[size_t(i)], exact), type + (transposed ? " transposed " : " packed ") + std::to_string(i));
      }
    }
  }
}

void check_copies(const RowKernels& kernels, const std::string& isa) {
  check_copies<float>(kernels.floats, [](float x) { return x; }, isa + " float");
  check_copies<uint16_t>(kernels.halves, metal_host::half_bits, isa + " half");
  check_copies<uint16_t>(kernels.bfloats, metal_host::bfloat_bits, isa + " bfloat");
}

// ---- Panels ----

struct Packing {
  uint16_t (*pack)(const PanelSource& source, uint16_t* panel);
  bool of_k;
};

// lines x k whole numbers, exact in bfloat16, packed from either layout. Guards around the source show what is read
// beyond it.
std::vector<uint16_t> packed(const Packing& packing, const std::vector<float>& values, int64_t lines, int64_t k) {
  const int64_t ld = (packing.of_k ? k : lines) + 5;
  const uint16_t guard = metal_host::bfloat_bits(1e30f);
  std::vector<uint16_t> source(size_t((packing.of_k ? lines : k) * ld), guard);
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t i = 0; i < k; ++i) {
      source[size_t(packing.of_k ? line * ld + i : i * ld + line)] =
          metal_host::bfloat_bits(values[size_t(line * k + i)]);
    }
  }
  const int64_t steps = (k + kPanelStep - 1) / kPanelStep;
  std::vector<uint16_t> panel(size_t(steps * kPanelStepElements), guard);
  const uint16_t least = packing.pack({source.data(), ld, lines, k}, panel.data());
  expect(least == metal_host::bfloat_bits(1.0f), "the least magnitude of a panel");
  return panel;
}

void check_panels(const PanelKernels& kernels) {
  std::mt19937 random(6);
  const auto whole = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    std::generate(values.begin(), values.end(), [&] { return float(int(random() % 17) - 8); });
    values[0] = -1.0f;
    return values;
  };
  for (const auto [rows, columns, k] : {std::tuple(32, 32, 32), {1, 1, 1}, {31, 7, 33}, {8, 32, 600}, {17, 16, 256}}) {
    const std::vector<float> a = whole(rows * k);
    const std::vector<float> b = whole(columns * k);
    const std::vector<uint16_t> a_panel = packed({kernels.pack_a_of_k, true}, a, rows, k);
    const std::vector<uint16_t> b_panel = packed({kernels.pack_b_of_k, true}, b, columns, k);
    expect(a_panel == packed({kernels.pack_a_of_lines, false}, a, rows, k), "panels of A from both layouts");
    expect(b_panel == packed({kernels.pack_b_of_lines, false}, b, columns, k), "panels of B from both layouts");
    std::vector<uint16_t> two = a_panel;
    two.insert(two.end(), a_panel.begin(), a_panel.end());
    std::vector<float> sums(2 * kPanelLines * kPanelLines, 1e30f);
    const int64_t steps = (k + kPanelStep - 1) / kPanelStep;
    kernels.multiply({packed_rows(two.data(), steps), 2, b_panel.data(), steps, sums.data()});
    for (int64_t i = 0; i < int64_t(sums.size()); ++i) {
      const int64_t row = i / kPanelLines % kPanelLines;
      const int64_t column = i % kPanelLines;
      float exact = 0;
      for (int64_t j = 0; j < k && row < rows && column < columns; ++j) {
        exact += a[size_t(row * k + j)] * b[size_t(column * k + j)];
      }
      expect(sums[size_t(i)] == exact, "panel product " + std::to_string(i));
    }
  }
}

// Rows where they are, added to sums that are there.
void check_rows_in_place(const PanelKernels& kernels) {
  constexpr int64_t kSteps = 11;
  constexpr int64_t kDepth = kSteps * kPanelStep;
  constexpr int64_t kLd = kDepth + 7;
  constexpr int64_t kRows = 3 * kPanelLines;
  std::mt19937 random(7);
  const auto number = [&] { return metal_host::bfloat_bits(float(int(random() % 17) - 8)); };
  std::vector<uint16_t> rows(size_t(kRows * kLd), metal_host::bfloat_bits(1e30f));
  std::vector<uint16_t> columns(size_t(kPanelLines * kDepth));
  std::generate(columns.begin(), columns.end(), number);
  for (int64_t row = 0; row < kRows; ++row) {
    std::generate_n(rows.begin() + row * kLd, kDepth, number);
  }
  rows[size_t(5 * kLd + 40)] = 0x0003;  // the least magnitude
  rows[size_t(5 * kLd + 41)] = 0x8000;  // a zero
  expect(kernels.least({rows.data(), kLd, kRows, kDepth}) == 0x0003, "the least magnitude of lines");
  rows[size_t(5 * kLd + 40)] = 0;
  std::vector<uint16_t> panel(columns.size());
  kernels.pack_b_of_k({columns.data(), kDepth, kPanelLines, kDepth}, panel.data());
  std::vector<float> sums(size_t(kRows * kPanelLines), 3.0f);
  kernels.multiply({rows_in_place(rows.data(), kLd), 3, panel.data(), kSteps, sums.data(), true});
  const auto value = [](uint16_t bits) { return metal_host::float_from_bfloat_bits(bits); };
  for (int64_t i = 0; i < kRows * kPanelLines; ++i) {
    float exact = 3;
    for (int64_t k = 0; k < kDepth; ++k) {
      exact += value(rows[size_t(i / kPanelLines * kLd + k)]) * value(columns[size_t(i % kPanelLines * kDepth + k)]);
    }
    expect(sums[size_t(i)] == exact, "product of rows in place " + std::to_string(i));
  }
}

// ---- Threads ----

void check_pool() {
  const auto sum_in_loops = [] {
    for (int64_t count : {0, 1, 2, 3, 100}) {
      announce_loop(4);
      std::atomic<int64_t> sum = 0;
      parallel_for(count, 4, [&](int64_t i) { sum += i + 1; });
      expect(sum == count * (count + 1) / 2, "a loop of " + std::to_string(count));
    }
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 50; ++repeat) {
        sum_in_loops();
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  for (int64_t thrower : {0, 7, 99}) {
    bool thrown = false;
    try {
      parallel_for(100, 4, [&](int64_t i) {
        if (i == thrower) {
          throw std::runtime_error("planted");
        }
      });
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    expect(thrown, "an exception in a loop");
  }
  sum_in_loops();
}

}  // namespace

int main() {
  std::vector<std::pair<std::string, const RowKernels*>> tables{{"portable", &kPortableRowKernels}};
#if defined(__x86_64__)
  if (cpu_isa() >= Isa::avx2) {
    tables.emplace_back("avx2", &kAvx2RowKernels);
  }
  if (cpu_isa() >= Isa::avx512) {
    tables.emplace_back("avx512", &kAvx512RowKernels);
  }
  if (cpu_isa() >= Isa::avx512_bf16) {
    check_panels(kAvx512PanelKernels);
    check_rows_in_place(kAvx512PanelKernels);
  }
#endif
  for (const auto& [isa, kernels] : tables) {
    check_conversions(*kernels, isa);
    check_epilogue(*kernels, isa);
    check_activations(*kernels, isa);
    check_lines(*kernels, isa);
    check_updates(*kernels, isa);
    check_copies(*kernels, isa);
  }
  if (panel_kernels() != nullptr) {
    check_panels(*panel_kernels());
    check_rows_in_place(*panel_kernels());
  }
  check_pool();
  std::printf("%s, %d threads: %d wrong\n", to_string(cpu_isa()), thread_count(), failures);
  return failures == 0 ? 0 : 1;
}
