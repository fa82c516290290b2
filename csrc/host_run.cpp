#include "csrc/host_run.h"

#include <chrono>
#include <vector>

#include "csrc/backends/cpu/strided_copy.h"
#include "csrc/backends/fused_launch.h"
#include "csrc/check.h"
#include "csrc/gemm.h"
#include "csrc/select.h"
#include "mlx/allocator.h"
#include "mlx/transforms.h"

namespace mlx_gemm {
namespace {

constexpr const char* kOp = "host.run";

Problem check_operands(const KernelInfo& kernel, const mx::array& a, const mx::array& b) {
  if (a.ndim() != 2 || b.ndim() != 2) {
    reject(kOp, "expected a[M, K] and b[K, N], got a=", a.shape(), " b=", b.shape());
  }
  if (a.dtype() != b.dtype()) {
    reject(kOp, "expected operands of one type, got ", a.dtype(), " and ", b.dtype());
  }
  product_shape(kOp, a.shape(), b.shape());
  const Dtype dtype = dtype_of(a.dtype());
  const Problem problem = problem_of(a.shape(), b.shape(), {.dtype = dtype, .out = dtype}, {&kernel, Backend::cpu});
  if (!mx::issubdtype(a.dtype(), mx::inexact)) {
    reject(kOp, kernel.name, " multiplies ", kernel.dtypes, ", got ", a.dtype());
  }
  if (const auto broken = unsupported(kernel, problem, {})) {
    reject(kOp, *broken);
  }
  return problem;
}

metal_host::Mode resolve_mode(const KernelInfo& kernel, const Problem& problem, const HostOptions& options) {
  const std::string function = function_name(kernel, problem.dtype, problem.out);
  const bool allows_uniform = host_module(options.check).allows_uniform(function);
  if (options.mode == metal_host::Mode::automatic) {
    return allows_uniform ? metal_host::Mode::uniform : metal_host::Mode::lanes;
  }
  if (options.mode == metal_host::Mode::uniform && !allows_uniform) {
    reject(kOp, kernel.name, " asks which lane it runs on: mode='uniform' cannot run it, mode='lanes' can");
  }
  return options.mode;
}

// The operand's elements, through `storage` where the kernel cannot address them in place.
const void* addressable(const mx::array& operand, const std::optional<Strided>& copied,
                        std::vector<std::byte>& storage) {
  if (!copied) {
    return operand.data<void>();
  }
  storage.resize(operand.nbytes());
  copy_row_contiguous({operand.data<void>(), static_cast<int64_t>(operand.itemsize())}, *copied, storage.data());
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
  const Problem problem = check_operands(kernel, a_given, b_given);
  HostOptions resolved = options;
  resolved.mode = resolve_mode(kernel, problem, options);

  mx::array a = a_given;
  mx::array b = b_given;
  mx::eval({a, b});
  GemmView view = view_operands(a, b, {&kernel, Backend::cpu});
  view.problem.dtype = problem.dtype;
  view.problem.out = problem.out;
  std::vector<std::byte> a_copy;
  std::vector<std::byte> b_copy;
  mx::array c({a.shape(0), b.shape(1)}, a.dtype(), nullptr, {});
  c.set_data(mx::allocator::malloc(c.nbytes()));
  const HostOperands operands{addressable(a, view.copied_a, a_copy), addressable(b, view.copied_b, b_copy),
                              c.data<void>()};

  const LaunchRecord record =
      kernel.fused() ? plan_fused_launches(kernel, view, {}).front() : plan_launch(kernel, view.problem);
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
