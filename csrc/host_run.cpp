#include "csrc/host_run.h"

#include <chrono>
#include <vector>

#include "csrc/backends/cpu/strided_copy.h"
#include "csrc/check.h"
#include "csrc/gemm.h"
#include "csrc/select.h"
#include "mlx/allocator.h"
#include "mlx/transforms.h"

namespace mlx_gemm {
namespace {

constexpr const char* kOp = "host.run";

void check_operands(const KernelInfo& kernel, const mx::array& a, const mx::array& b) {
  if (a.ndim() != 2 || b.ndim() != 2) {
    reject(kOp, "expected a[M, K] and b[K, N], got a=", a.shape(), " b=", b.shape());
  }
  if (a.dtype() != mx::float32 || b.dtype() != mx::float32) {
    reject(kOp, kernel.name, " multiplies float32, got ", a.dtype(), " and ", b.dtype());
  }
  product_shape(kOp, a.shape(), b.shape());
  const Problem problem = problem_of(a.shape(), b.shape(), Dtype::float32, {&kernel, Backend::cpu});
  if (const auto broken = unsupported(kernel, problem, {})) {
    reject(kOp, *broken);
  }
}

metal_host::Mode resolve_mode(const KernelInfo& kernel, const HostOptions& options) {
  const bool allows_uniform = host_module(options.check).allows_uniform(kernel.name);
  if (options.mode == metal_host::Mode::automatic) {
    return allows_uniform ? metal_host::Mode::uniform : metal_host::Mode::lanes;
  }
  if (options.mode == metal_host::Mode::uniform && !allows_uniform) {
    reject(kOp, kernel.name, " asks which lane it runs on: mode='uniform' cannot run it, mode='lanes' can");
  }
  return options.mode;
}

// The operand's elements, through `storage` where the kernel cannot address them in place.
const float* addressable(const mx::array& operand, bool copied, std::vector<float>& storage) {
  if (!copied) {
    return operand.data<float>();
  }
  storage.resize(operand.size());
  copy_row_contiguous({operand.data<float>(), sizeof(float)}, layout_of(operand), storage.data());
  return storage.data();
}

void add_traffic(const metal_host::Counters& counted, Report& report) {
  report.requested_read_bytes = counted.device_read_bytes;
  report.requested_write_bytes = counted.device_write_bytes;
  report.threadgroup_read_bytes = counted.threadgroup_read_bytes;
  report.threadgroup_write_bytes = counted.threadgroup_write_bytes;
  report.intensity =
      static_cast<double>(report.flops) / static_cast<double>(counted.device_read_bytes + counted.device_write_bytes);
}

}  // namespace

std::pair<mx::array, Report> host_run(const KernelInfo& kernel, const mx::array& a_given, const mx::array& b_given,
                                      const HostOptions& options) {
  if (options.check && !has_checked_module()) {
    reject(kOp, "this build has no checked kernels, they are built on Linux only: pass check=False");
  }
  check_operands(kernel, a_given, b_given);
  HostOptions resolved = options;
  resolved.mode = resolve_mode(kernel, options);

  mx::array a = a_given;
  mx::array b = b_given;
  mx::eval({a, b});
  const GemmView view = view_operands(a, b, {&kernel, Backend::cpu});
  std::vector<float> a_copy;
  std::vector<float> b_copy;
  mx::array c({a.shape(0), b.shape(1)}, mx::float32, nullptr, {});
  c.set_data(mx::allocator::malloc(c.nbytes()));
  const HostOperands operands{addressable(a, view.copy_a, a_copy), addressable(b, view.copy_b, b_copy),
                              c.data<float>()};

  const LaunchRecord record = plan_launch(kernel, view.problem);
  const auto start = std::chrono::steady_clock::now();
  const metal_host::Outcome outcome = play(record, operands, resolved);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  c.set_status(mx::array::Status::available);

  const metal_host::Counters& counted = outcome.counters;
  Report report;
  report.kernel = kernel.name;
  report.checked = options.check;
  report.mode = resolved.mode == metal_host::Mode::uniform ? "uniform" : "lanes";
  report.flops = 2 * view.problem.M * view.problem.N * view.problem.K;
  report.threadgroups = counted.threadgroups;
  report.barriers = counted.barriers;
  report.multiplies = counted.multiplies;
  report.threadgroup_bytes = counted.threadgroup_bytes;
  report.warnings.assign(outcome.warnings.begin(), outcome.warnings.end());
  report.seconds = elapsed.count();
  if (options.check) {
    add_traffic(counted, report);
  }
  return {c, report};
}

}  // namespace mlx_gemm
