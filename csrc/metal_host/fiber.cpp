#include "csrc/metal_host/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace metal_host {

namespace {

// Measured: the ladder's deepest kernel uses under 8 KiB at -O2; sanitizer builds several times as much.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 256 << 10;
#else
constexpr size_t kStackBytes = 48 << 10;
#endif

// Stacks of equal alignment would compete for the same cache sets; each one starts some lines lower than the last.
constexpr size_t kColours = 61;
constexpr size_t kCacheLine = 64;

size_t page_bytes() {
  static const size_t bytes = size_t(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::mutex pools_mutex;

// Never destroyed: stream threads may still release a pool while the process exits.
std::vector<std::unique_ptr<StackPool>>& idle_pools() {
  static auto* pools = new std::vector<std::unique_ptr<StackPool>>;
  return *pools;
}

}  // namespace

StackPool::StackPool(size_t count) : count_(count) {
  const size_t stride = kStackBytes + page_bytes();
  void* memory =
      mmap(nullptr, stride * count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  base_ = static_cast<std::byte*>(memory);
  for (size_t i = 0; i < count; ++i) {
    if (mprotect(base_ + i * stride, page_bytes(), PROT_NONE) != 0) {
      munmap(base_, stride * count);
      throw std::bad_alloc();
    }
  }
}

StackPool::~StackPool() { munmap(base_, (kStackBytes + page_bytes()) * count_); }

Stack StackPool::operator[](size_t index) const {
  const size_t stride = kStackBytes + page_bytes();
  const size_t colour = index % kColours * kCacheLine;
  return {base_ + index * stride + page_bytes(), kStackBytes - colour};
}

std::unique_ptr<StackPool> StackPool::acquire(size_t count) {
  {
    std::lock_guard lock(pools_mutex);
    auto& pools = idle_pools();
    for (auto& pool : pools) {
      if (pool->size() >= count) {
        auto found = std::move(pool);
        pool = std::move(pools.back());
        pools.pop_back();
        return found;
      }
    }
  }
  return std::make_unique<StackPool>(count);
}

void StackPool::release(std::unique_ptr<StackPool> pool) {
  constexpr size_t kMaxIdle = 4;
  std::lock_guard lock(pools_mutex);
  auto& pools = idle_pools();
  if (pools.size() < kMaxIdle) {
    pools.push_back(std::move(pool));
  }
}

namespace {

#ifdef METAL_HOST_PORTABLE_FIBERS

void set_entry(Context& context, const Stack& stack, void (*entry)()) {
  getcontext(&context.registers);
  context.registers.uc_stack.ss_sp = stack.base;
  context.registers.uc_stack.ss_size = stack.bytes;
  context.registers.uc_link = nullptr;
  makecontext(&context.registers, entry, 0);
}

void swap_registers(Context& from, Context& to) { swapcontext(&from.registers, &to.registers); }

#else

// The label is the symbol's whole name: Mach-O would put an underscore before it.
extern "C" void metal_host_switch(void** save_stack_pointer, void* load_stack_pointer) asm("metal_host_switch");

// Both save what a call must preserve on the old stack and pop it from the new one. Kernels never change the rounding
// mode, so the floating-point control words stay as they are.
#if defined(__x86_64__)

// System V: six integer registers. A started fiber finds `entry` as its return address.
constexpr int kEntryWord = 6;
constexpr int kFrameWords = 8;  // the last word keeps the stack aligned as after a call

asm(R"(
.text
.p2align 4
metal_host_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

#elif defined(__aarch64__)

// AAPCS64: x19 to x30 and the low halves of v8 to v15. A started fiber finds `entry` in x30, the link register.
constexpr int kEntryWord = 11;
constexpr int kFrameWords = 20;

asm(R"(
.text
.p2align 4
metal_host_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");

#endif

void set_entry(Context& context, const Stack& stack, void (*entry)()) {
  constexpr uintptr_t kCacheLineMask = ~uintptr_t(kCacheLine - 1);
  auto* top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack.base + stack.bytes) & kCacheLineMask);
  void** frame = top - kFrameWords;
  std::fill(frame, top, nullptr);
  frame[kEntryWord] = reinterpret_cast<void*>(entry);
  context.stack_pointer = frame;
}

void swap_registers(Context& from, Context& to) { metal_host_switch(&from.stack_pointer, to.stack_pointer); }

#endif

#ifdef __SANITIZE_ADDRESS__
thread_local Context* switched_from = nullptr;

// AddressSanitizer tells the bounds of the stack that was left; that is how the scheduler's own become known.
void arrived(void* fake_stack) {
  const void* base = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack, &base, &bytes);
  switched_from->stack = {static_cast<std::byte*>(const_cast<void*>(base)), bytes};
}
#endif

}  // namespace

void prepare(Context& context, const Stack& stack, void (*entry)()) {
#ifdef __SANITIZE_ADDRESS__
  context.stack = stack;
  context.fake_stack = nullptr;
  __asan_unpoison_memory_region(stack.base, stack.bytes);  // frames of the fiber that had this stack before
#endif
  set_entry(context, stack, entry);
}

void begin_fiber() {
#ifdef __SANITIZE_ADDRESS__
  arrived(nullptr);
#endif
}

void switch_context(Context& from, Context& to, [[maybe_unused]] bool last) {
#ifdef __SANITIZE_ADDRESS__
  switched_from = &from;
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_stack, to.stack.base, to.stack.bytes);
#endif
  swap_registers(from, to);
#ifdef __SANITIZE_ADDRESS__
  arrived(from.fake_stack);
#endif
}

}  // namespace metal_host
