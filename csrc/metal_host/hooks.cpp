// The checked module: kernels compiled with -fsanitize=thread call __tsan_* around every memory access, and these are
// our own. The real ThreadSanitizer is not linked.
#include <new>

#include <cstring>

#include "csrc/metal_host/checker.h"
#include "csrc/metal_host/dispatch.h"
#include "csrc/metal_host/isolated_buffers.h"

namespace metal_host {

namespace {

void access(const void* data, size_t bytes, bool write, const void* return_address) {
  const Lane* lane = current_lane();
  if (lane && lane->group->checker()) {
    lane->group->checker()->access(data, bytes, write, return_address);
  }
}

// Arrays lie close together in memory, and an access past the end of one could pass for one to its neighbour.
Outcome run_isolated(const Dispatch& dispatch) try {
  const IsolatedBuffers isolated(dispatch.buffers);
  Dispatch copy = dispatch;
  copy.buffers = isolated.copies();
  Outcome outcome = run_dispatch(copy, true);
  isolated.copy_back();
  return outcome;
} catch (const std::bad_alloc&) {
  return {{}, {}, "the host runtime failed: no memory to watch the buffers with"};
}

}  // namespace

}  // namespace metal_host

extern "C" const metal_host::Module* metal_host_module() {
  using namespace metal_host;
  static const Module module{true, has_kernel, allows_uniform, run_isolated};
  return &module;
}

#define METAL_HOST_HOOK(NAME, BYTES, WRITE) \
  void NAME(void* data) { metal_host::access(data, BYTES, WRITE, __builtin_return_address(0)); }
#define METAL_HOST_HOOKS(BYTES)                                        \
  METAL_HOST_HOOK(__tsan_read##BYTES, BYTES, false)                    \
  METAL_HOST_HOOK(__tsan_write##BYTES, BYTES, true)                    \
  METAL_HOST_HOOK(__tsan_unaligned_read##BYTES, BYTES, false)          \
  METAL_HOST_HOOK(__tsan_unaligned_write##BYTES, BYTES, true)          \
  METAL_HOST_HOOK(__tsan_volatile_read##BYTES, BYTES, false)           \
  METAL_HOST_HOOK(__tsan_volatile_write##BYTES, BYTES, true)           \
  METAL_HOST_HOOK(__tsan_unaligned_volatile_read##BYTES, BYTES, false) \
  METAL_HOST_HOOK(__tsan_unaligned_volatile_write##BYTES, BYTES, true)

extern "C" {
METAL_HOST_HOOKS(1)
METAL_HOST_HOOKS(2)
METAL_HOST_HOOKS(4)
METAL_HOST_HOOKS(8)
METAL_HOST_HOOKS(16)
void __tsan_read_range(void* data, unsigned long bytes) {
  metal_host::access(data, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void* data, unsigned long bytes) {
  metal_host::access(data, bytes, true, __builtin_return_address(0));
}
// Clang's, for copies of structs.
void* __tsan_memcpy(void* to, const void* from, unsigned long bytes) {
  metal_host::access(from, bytes, false, __builtin_return_address(0));
  metal_host::access(to, bytes, true, __builtin_return_address(0));
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* data, int value, unsigned long bytes) {
  metal_host::access(data, bytes, true, __builtin_return_address(0));
  return std::memset(data, value, bytes);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
