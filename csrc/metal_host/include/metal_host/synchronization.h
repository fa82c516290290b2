// Barriers.
#pragma once

#include "metal_host/types.h"

namespace METAL_HOST_MSL::metal {

enum class mem_flags : uint {
  mem_none = metal_host::kMemoryNone,
  mem_device = metal_host::kMemoryDevice,
  mem_threadgroup = metal_host::kMemoryThreadgroup,
};

constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }

inline void threadgroup_barrier(mem_flags flags, Site site = Site::current()) {
  metal_host::threadgroup_barrier(uint(flags), site);
}

inline void simdgroup_barrier(mem_flags flags, Site site = Site::current()) {
  metal_host::simdgroup_barrier(uint(flags), site);
}

}  // namespace METAL_HOST_MSL::metal
