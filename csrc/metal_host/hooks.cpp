// The checked module: kernels compiled with -fsanitize=thread call __tsan_* around every memory access, and these
// are our own. They count traffic and refuse any address that is not the kernel's to touch. The real ThreadSanitizer
// is not linked.
#include <cstring>

#include "csrc/metal_host/dispatch.h"
#include "csrc/metal_host/multiply_tile.h"
#include "csrc/metal_host/threadgroup.h"

extern "C" {
extern const char __ehdr_start;  // this shared object's image, by the linker
extern const char _end;
}

namespace metal_host {

namespace {

bool contains(const void* base, size_t bytes, const void* data) {
  const auto* begin = static_cast<const std::byte*>(base);
  const auto* at = static_cast<const std::byte*>(data);
  return at >= begin && at < begin + bytes;
}

bool in_image(const void* data) { return data >= &__ehdr_start && data < &_end; }

[[noreturn]] void report_outside(const Lane& lane, const void* data, size_t bytes, bool write) {
  const char* what = write ? "write" : "read";
  const Nearest near = lane.group->nearest(data);
  if (near.slot < 0) {
    fault(lane.site, "%s of %zu bytes outside every buffer, threadgroup variable and this thread's stack", what, bytes);
  }
  fault(lane.site, "%s of %zu bytes out of bounds, %td bytes %s buffer(%d)", what, bytes, near.bytes, near.where,
        near.slot);
}

void access(const void* data, size_t bytes, bool write) {
  Lane* lane = current_lane();
  if (!lane || contains(lane->stack.base, lane->stack.bytes, data)) {
    return;
  }
  Threadgroup& group = *lane->group;
  switch (group.locate(data, bytes, write)) {
    case Location::device: {
      Counters& counters = group.counters();
      (write ? counters.device_write_bytes : counters.device_read_bytes) += bytes;
      break;
    }
    case Location::threadgroup: {
      Counters& counters = group.counters();
      (write ? counters.threadgroup_write_bytes : counters.threadgroup_read_bytes) += bytes;
      break;
    }
    case Location::uncounted: break;
    case Location::read_only:
      fault(lane->site, "write of %zu bytes to a read-only buffer", bytes);
    case Location::outside:
      if (!in_image(data)) {
        report_outside(*lane, data, bytes, write);
      }
  }
}

}  // namespace

}  // namespace metal_host

extern "C" const metal_host::Module* metal_host_module() {
  using namespace metal_host;
  static const Module module = [] {
    set_access_observer(access);
    return Module{true, has_kernel, allows_uniform, run_dispatch};
  }();
  return &module;
}

#define METAL_HOST_ACCESS(SIZE)                                                                 \
  void __tsan_read##SIZE(void* p) { metal_host::access(p, SIZE, false); }                       \
  void __tsan_write##SIZE(void* p) { metal_host::access(p, SIZE, true); }                       \
  void __tsan_unaligned_read##SIZE(void* p) { metal_host::access(p, SIZE, false); }             \
  void __tsan_unaligned_write##SIZE(void* p) { metal_host::access(p, SIZE, true); }             \
  void __tsan_volatile_read##SIZE(void* p) { metal_host::access(p, SIZE, false); }              \
  void __tsan_volatile_write##SIZE(void* p) { metal_host::access(p, SIZE, true); }              \
  void __tsan_unaligned_volatile_read##SIZE(void* p) { metal_host::access(p, SIZE, false); }    \
  void __tsan_unaligned_volatile_write##SIZE(void* p) { metal_host::access(p, SIZE, true); }

extern "C" {
METAL_HOST_ACCESS(1)
METAL_HOST_ACCESS(2)
METAL_HOST_ACCESS(4)
METAL_HOST_ACCESS(8)
METAL_HOST_ACCESS(16)
void __tsan_read_range(void* p, unsigned long bytes) { metal_host::access(p, bytes, false); }
void __tsan_write_range(void* p, unsigned long bytes) { metal_host::access(p, bytes, true); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
