// Replays GPU launches: every kernel's record is played through an encoder that only writes down what MLX's would get,
// and what it wrote down is run on the host runtime, checked. Then records with planted faults must not pass.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "csrc/backends/metal/encode.h"
#include "csrc/metal_host/host.h"

namespace {

using namespace mlx_gemm;

using Array = std::vector<float>;

// The part of MLX's CommandEncoder that encode() uses.
class RecordingEncoder {
 public:
  void set_compute_pipeline_state(const KernelInfo* pipeline) { dispatch_.kernel = pipeline->name; }
  void set_input_array(const Array& array, int slot, int64_t offset) { bind(array, slot, offset, false); }
  void set_output_array(Array& array, int slot, int64_t offset) { bind(array, slot, offset, true); }
  void set_bytes(const std::byte* data, int count, int slot) {
    params_.assign(data, data + count);
    dispatch_.buffers[size_t(slot)] = {params_.data(), params_.size(), false, true};
  }
  void dispatch_threadgroups(metal_host::Size3 grid, metal_host::Size3 threads) {
    dispatch_.grid = grid;
    dispatch_.threads = threads;
  }

  metal_host::Outcome run() const { return metal_host_module()->run(dispatch_); }

 private:
  // A GPU binds a buffer from an offset to its end.
  void bind(const Array& array, int slot, int64_t offset, bool writable) {
    auto* data = reinterpret_cast<std::byte*>(const_cast<float*>(array.data()));
    dispatch_.buffers[size_t(slot)] = {data + offset, array.size() * sizeof(float) - size_t(offset), writable};
  }

  metal_host::Dispatch dispatch_;
  std::vector<std::byte> params_;
};

// Two products in one set of arrays, as a batch lies in memory, with room between the rows of A and B.
struct Batch {
  Problem problem;
  Array a;
  Array b;
  std::vector<int64_t> exact;

  OperandOffsets offsets(int index) const {
    return {index * problem.M * problem.lda, index * problem.K * problem.ldb, index * problem.M * problem.N};
  }
};

Batch make_batch(int64_t M, int64_t N, int64_t K) {
  Batch batch;
  batch.problem = {.M = M, .N = N, .K = K, .lda = K + 3, .ldb = N + 5};
  const Problem& p = batch.problem;
  std::mt19937 random(unsigned(M + N + K));
  std::uniform_int_distribution<int> small(-8, 8);
  batch.a.resize(size_t(2 * M * p.lda));
  batch.b.resize(size_t(2 * K * p.ldb));
  std::generate(batch.a.begin(), batch.a.end(), [&] { return float(small(random)); });
  std::generate(batch.b.begin(), batch.b.end(), [&] { return float(small(random)); });
  batch.exact.resize(size_t(2 * M * N));
  for (int index = 0; index < 2; ++index) {
    const OperandOffsets at = batch.offsets(index);
    for (int64_t i = 0; i < M; ++i) {
      for (int64_t j = 0; j < N; ++j) {
        for (int64_t k = 0; k < K; ++k) {
          batch.exact[size_t(at.c + i * N + j)] +=
              int64_t(batch.a[size_t(at.a + i * p.lda + k)]) * int64_t(batch.b[size_t(at.b + k * p.ldb + j)]);
        }
      }
    }
  }
  return batch;
}

using Tamper = std::function<void(LaunchRecord&)>;

// Whether both launches, tampered with, finish with the right result.
bool passes(const KernelInfo& kernel, const Batch& batch, const Tamper& tamper) {
  Array c(batch.exact.size(), std::numeric_limits<float>::quiet_NaN());
  for (int index = 0; index < 2; ++index) {
    LaunchRecord record = plan_launch(kernel, batch.problem, batch.offsets(index));
    tamper(record);
    RecordingEncoder encoder;
    encode(record, LaunchArrays<Array>{batch.a, batch.b, c}, &kernel, encoder);
    if (const metal_host::Outcome outcome = encoder.run(); !outcome.fault.empty()) {
      return false;
    }
  }
  return std::equal(c.begin(), c.end(), batch.exact.begin(), [](float x, int64_t y) { return x == float(y); });
}

GemmParams* params(LaunchRecord& record) { return reinterpret_cast<GemmParams*>(record.params.data()); }

struct Fault {
  const char* name;
  Tamper plant;
};

const Fault kFaults[] = {
    {"A and B in each other's slots", [](LaunchRecord& r) { std::swap(r.buffers[0].slot, r.buffers[1].slot); }},
    {"A's offset forgotten", [](LaunchRecord& r) { r.buffers[0].byte_offset = 0; }},
    {"B's offset in elements", [](LaunchRecord& r) { r.buffers[1].byte_offset /= 4; }},
    {"C's offset off by one", [](LaunchRecord& r) { r.buffers[2].byte_offset += 4; }},
    {"C bound twice to A", [](LaunchRecord& r) { r.buffers[0].operand = Operand::c; }},
    {"params in another slot", [](LaunchRecord& r) { r.params_slot = 4; }},
    {"K and ldc swapped", [](LaunchRecord& r) { std::swap(params(r)->K, params(r)->ldc); }},
    {"lda taken for K", [](LaunchRecord& r) { params(r)->lda = params(r)->K; }},
    {"ldb taken for N", [](LaunchRecord& r) { params(r)->ldb = params(r)->N; }},
    {"one threadgroup short", [](LaunchRecord& r) { r.grid.x -= 1; }},
    {"half the threads", [](LaunchRecord& r) { (r.threads.y > 1 ? r.threads.y : r.threads.x) /= 2; }},
};

// More tiles down than across, and no two of M, N, K equal.
Batch batch_for(const KernelInfo& kernel) {
  const auto [m, n, k] = kernel.needs;
  return m > 1 ? make_batch(4 * m, 2 * n, 3 * k) : make_batch(2 * kernel.bm + 3, kernel.bn + 1, 70);
}

}  // namespace

int main() {
  int passed = 0;
  int failed = 0;
  const auto report = [&](bool right, const KernelInfo& kernel, const char* what) {
    right ? ++passed : ++failed;
    if (!right) {
      std::printf("FAILED %.*s: %s\n", int(kernel.name.size()), kernel.name.data(), what);
    }
  };
  for (const KernelInfo& kernel : kernels()) {
    const Batch batch = batch_for(kernel);
    report(passes(kernel, batch, [](LaunchRecord&) {}), kernel, "the launch as planned");
    for (const Fault& fault : kFaults) {
      report(!passes(kernel, batch, fault.plant), kernel, fault.name);
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0 || passed == 0;
}
