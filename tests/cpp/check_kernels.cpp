// Runs every kernel of the registry on the host runtime, in every mode, on shapes around its own tile, and compares
// with a float64 product. Exits 1 when a result is outside its bound or a kernel faults.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "csrc/backends/fused_launch.h"
#include "csrc/metal_host/host.h"
#include "csrc/metal_host/multiply_tile.h"
#include "csrc/select.h"

namespace {

using namespace mlx_gemm;
using metal_host::Mode;

struct Product {
  Problem problem;
  std::vector<float> a;
  std::vector<float> b;
  std::vector<double> exact;
  std::vector<double> bound;  // 1.25 u |C| + 4 sqrt(K) u (|A||B|)
};

// `integers`: small enough for every sum to be exact in float32, so the bound is zero.
Product make_product(int64_t M, int64_t N, int64_t K, bool integers) {
  Product p;
  p.problem = {.M = M, .N = N, .K = K, .lda = K, .ldb = N};
  std::mt19937 random(unsigned(M * 31 + N * 7 + K));
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> small(-8, 8);
  const auto draw = [&] { return integers ? float(small(random)) : normal(random); };
  p.a.resize(size_t(M * K));
  p.b.resize(size_t(K * N));
  std::generate(p.a.begin(), p.a.end(), draw);
  std::generate(p.b.begin(), p.b.end(), draw);
  p.exact.resize(size_t(M * N));
  p.bound.resize(size_t(M * N));
  constexpr double u = 0x1p-24;
  for (int64_t i = 0; i < M; ++i) {
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t j = 0; j < N; ++j) {
        const double term = double(p.a[size_t(i * K + k)]) * double(p.b[size_t(k * N + j)]);
        p.exact[size_t(i * N + j)] += term;
        p.bound[size_t(i * N + j)] += integers ? 0.0 : 4 * std::sqrt(double(K)) * u * std::abs(term);
      }
    }
  }
  for (size_t i = 0; i < p.bound.size() && !integers; ++i) {
    p.bound[i] += 1.25 * u * std::abs(p.exact[i]);
  }
  return p;
}

metal_host::Outcome run(const KernelInfo& kernel, const Product& p, std::vector<float>& c, Mode mode) {
  const LaunchRecord record =
      kernel.fused() ? plan_fused_launches(kernel, {.problem = p.problem}, {}).front() : plan_launch(kernel, p.problem);
  metal_host::Dispatch dispatch;
  dispatch.kernel = record.kernel;
  for (const FunctionConstant& constant : record.constants) {
    dispatch.constants.push_back({constant.id, constant.value});
  }
  dispatch.grid = {record.grid.x, record.grid.y, record.grid.z};
  dispatch.threads = {record.threads.x, record.threads.y, record.threads.z};
  dispatch.mode = mode;
  for (const BufferBinding& binding : record.buffers) {
    float* data = binding.operand == Operand::a   ? const_cast<float*>(p.a.data())
                  : binding.operand == Operand::b ? const_cast<float*>(p.b.data())
                                                  : c.data();
    dispatch.buffers[size_t(binding.slot)] = {data, size_t(binding.byte_size), binding.writable};
  }
  dispatch.buffers[size_t(record.params_slot)] = {const_cast<std::byte*>(record.params.data()), record.params.size(),
                                                  false, true};
  return metal_host_module()->run(dispatch);
}

bool check(const KernelInfo& kernel, const Product& p, Mode mode) {
  // NaN in C and after it: an element that is not written, or a write past the end, shows.
  constexpr size_t kGuard = 64;
  std::vector<float> c(p.exact.size() + kGuard, std::numeric_limits<float>::quiet_NaN());
  const metal_host::Outcome outcome = run(kernel, p, c, mode);
  const char* name = mode == Mode::lanes ? "lanes" : "uniform";
  if (!outcome.fault.empty()) {
    std::printf("FAULT %.*s %s: %s\n", int(kernel.name.size()), kernel.name.data(), name, outcome.fault.c_str());
    return false;
  }
  for (size_t i = 0; i < p.exact.size(); ++i) {
    if (!(std::abs(c[i] - p.exact[i]) <= p.bound[i])) {
      std::printf("WRONG %.*s %s %s: C[%zu] = %.9g, exact %.17g\n", int(kernel.name.size()), kernel.name.data(), name,
                  describe(p.problem).c_str(), i, double(c[i]), p.exact[i]);
      return false;
    }
  }
  return std::all_of(c.end() - kGuard, c.end(), [](float x) { return std::isnan(x); });
}

// One length per dimension: a tile and what lies around it, as far as the kernel's own rules allow.
std::vector<std::array<int64_t, 3>> shapes_of(const KernelInfo& kernel) {
  const auto [m, n, k] = kernel.needs;
  if (m > 1) {
    return {{m, n, k}, {2 * m, n, 2 * k}, {3 * m, 2 * n, k}};
  }
  const int64_t bk = std::max(kernel.bk, 32);
  return {
      {1, 1, 1}, {kernel.bm, kernel.bn, bk}, {kernel.bm - 1, kernel.bn + 1, bk + 1}, {kernel.bm + 5, 3, 2 * bk - 1}};
}

}  // namespace

int main() {
  int cases = 0;
  int failures = 0;
  for (const KernelInfo& kernel : kernels()) {
    const bool truncates = kernel.math == Math::tf32;  // exact on small integers all the same
    for (const auto& [M, N, K] : shapes_of(kernel)) {
      for (const bool integers : {false, true}) {
        if (truncates && !integers) {
          continue;
        }
        const Product product = make_product(M, N, K, integers);
        for (const Mode mode : {Mode::lanes, Mode::uniform}) {
          const std::string function = function_name(kernel, Dtype::float32, Dtype::float32);
          if (mode == Mode::uniform && !metal_host_module()->allows_uniform(function)) {
            continue;
          }
          ++cases;
          failures += !check(kernel, product, mode);
        }
      }
    }
  }
  std::printf("%d passed, %d failed (%s micro-kernel)\n", cases - failures, failures, metal_host::micro_kernel_isa());
  return failures != 0 || cases == 0;
}
