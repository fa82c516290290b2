// Every Metal name lives in one namespace per build: kernels are compiled once with a fiber per thread and once with a
// fiber per SIMD group, and both may be linked into one program.
#pragma once

#include "csrc/metal_host/runtime.h"

#if METAL_HOST_LANES == 32
#define METAL_HOST_MSL metal_host_lanes
#elif METAL_HOST_LANES == 1
#define METAL_HOST_MSL metal_host_uniform
#else
#error "METAL_HOST_LANES is 32 (a fiber per thread) or 1 (a fiber per SIMD group)"
#endif

namespace METAL_HOST_MSL {
using metal_host::Site;
}
