// A module's interface in plain C, for callers that load one at run time (tools/host_module.py, through ctypes).
#pragma once

#include <stdint.h>

#define METAL_HOST_EXPORT __attribute__((visibility("default")))

extern "C" {

struct MetalHostBuffer {
  void* data;
  uint64_t bytes;
  int32_t slot;
  int32_t writable;
  int32_t constant;  // in the constant address space: not counted as device traffic
};

struct MetalHostConstant {
  int64_t value;
  int32_t id;
};

struct MetalHostDispatch {
  const char* kernel;
  const struct MetalHostBuffer* buffers;
  const struct MetalHostConstant* constants;
  int32_t buffer_count;
  int32_t constant_count;
  uint32_t grid[3];
  uint32_t threads[3];
  uint32_t grid_threads[3];  // 0: whole threadgroups
  int32_t mode;              // 0 automatic, 1 a fiber per thread, 2 a fiber per SIMD group
  int32_t workers;           // 0: one per CPU
  int32_t tolerant;          // what GPUs get away with is a warning
  int32_t shuffled;
  uint64_t seed;
};

struct MetalHostCounters {
  uint64_t threadgroups;
  uint64_t barriers;
  uint64_t multiplies;
  uint64_t threadgroup_bytes;
  uint64_t device_read_bytes;
  uint64_t device_write_bytes;
  uint64_t threadgroup_read_bytes;
  uint64_t threadgroup_write_bytes;
};

struct MetalHostText {
  char* data;
  int32_t capacity;
};

// Returns 1 when the dispatch faulted, 0 when it finished. `text` gets the fault, or the warnings, one per line, cut to
// its capacity.
METAL_HOST_EXPORT int32_t metal_host_dispatch(const struct MetalHostDispatch* dispatch,
                                              struct MetalHostCounters* counters, struct MetalHostText text);

METAL_HOST_EXPORT int32_t metal_host_allows_uniform(const char* kernel);
}
