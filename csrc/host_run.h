// One matrix product on the Metal host runtime, now, with a report of what the kernel did.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/backends/cpu/host_play.h"
#include "csrc/registry.h"
#include "mlx/array.h"

namespace mlx_gemm {

struct Report {
  std::string kernel;
  bool checked = false;
  std::string mode;  // "lanes" or "uniform": which fibers stood for the threads
  int64_t flops = 0;
  int64_t threadgroups = 0;
  int64_t barriers = 0;
  int64_t multiplies = 0;
  int64_t threadgroup_bytes = 0;
  // Traffic is counted by the checked build only.
  std::optional<int64_t> requested_read_bytes;
  std::optional<int64_t> requested_write_bytes;
  std::optional<int64_t> threadgroup_read_bytes;
  std::optional<int64_t> threadgroup_write_bytes;
  std::optional<double> intensity;    // FLOP per requested byte of device memory
  std::vector<std::string> warnings;  // of the checked build: what works on GPUs without being guaranteed
  double seconds = 0;                 // wall time on the host
};

// a[M, K] and b[K, N] are evaluated and must be of one type, which is that of the result. Throws std::invalid_argument
// for what the kernel cannot run and HostFault when it breaks a rule of Metal.
std::pair<mlx::core::array, Report> host_run(const KernelInfo& kernel, const mlx::core::array& a,
                                             const mlx::core::array& b, const HostOptions& options);

}  // namespace mlx_gemm
