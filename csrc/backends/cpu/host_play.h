// Plays launch records on this machine's CPU, through the Metal host runtime.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "csrc/backends/launch_record.h"
#include "csrc/metal_host/host.h"

namespace mlx_gemm {

// A kernel broke a rule of Metal: an access out of bounds, a data race, divergent collectives.
struct HostFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// By Operand. What a launch may write is for its bindings to say.
struct HostOperands {
  const void* a;
  const void* b;
  void* c;
  const void* addend = nullptr;
  const void* residual = nullptr;
};

struct HostOptions {
  bool check = false;  // the checked build: bounds, races and traffic
  metal_host::Mode mode = metal_host::Mode::automatic;
  std::optional<uint64_t> seed = {};
};

// Path of the checked build, a shared object that is loaded when it is first asked for. Empty: there is none.
void set_checked_module_path(const std::string& path);
bool has_checked_module();

const metal_host::Module& host_module(bool checked);

// Throws HostFault when the kernel faults; C then holds whatever was written before.
metal_host::Outcome play(const LaunchRecord& record, const HostOperands& operands, const HostOptions& options = {});

}  // namespace mlx_gemm
