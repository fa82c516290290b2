// Runs all threadgroups of a dispatch, on several OS threads.
#pragma once

#include "csrc/metal_host/host.h"

namespace metal_host {

// `checked`: the kernels are instrumented, and every access is watched.
Outcome run_dispatch(const Dispatch& dispatch, bool checked);

bool has_kernel(std::string_view name);
bool allows_uniform(std::string_view name);

}  // namespace metal_host
