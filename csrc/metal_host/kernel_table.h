// The translated kernels of this module, by name.
#pragma once

#include <string_view>

#include "csrc/metal_host/runtime.h"

namespace metal_host {

// nullptr when there is no such kernel, or none built for that many lanes.
const KernelEntry* find_kernel(std::string_view name, uint32_t lanes);

}  // namespace metal_host
