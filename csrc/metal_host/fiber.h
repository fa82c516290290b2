// Stackful fibers: one stands for each Metal thread (or SIMD group) of a threadgroup.
#pragma once

#include <cstddef>
#include <memory>

// The hand-written switch is for two processors, and for targets of ELF or Mach-O objects.
#if !(defined(__ELF__) || defined(__MACH__)) || !(defined(__x86_64__) || defined(__aarch64__)) || \
    defined(METAL_HOST_UCONTEXT)
#define METAL_HOST_PORTABLE_FIBERS 1
#include <ucontext.h>
#endif

namespace metal_host {

struct Stack {
  std::byte* base = nullptr;
  size_t bytes = 0;
};

// Saved registers of a suspended fiber.
struct Context {
#ifdef METAL_HOST_PORTABLE_FIBERS
  ucontext_t registers;
#else
  void* stack_pointer = nullptr;
#endif
#ifdef __SANITIZE_ADDRESS__
  Stack stack;
  void* fake_stack = nullptr;
#endif
};

// Makes `context` start `entry` on `stack`. `entry` must call begin_fiber() first and must never return.
void prepare(Context& context, const Stack& stack, void (*entry)());
void begin_fiber();

// `last`: nobody will switch back to `from`.
void switch_context(Context& from, Context& to, bool last = false);

// A row of stacks with an unmapped page below each: an overflow stops the process instead of corrupting a neighbour.
class StackPool {
 public:
  explicit StackPool(size_t count);
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  size_t size() const { return count_; }
  Stack operator[](size_t index) const;

  // Mapping pages is slow next to a small dispatch, so pools are kept for the next one.
  static std::unique_ptr<StackPool> acquire(size_t count);
  static void release(std::unique_ptr<StackPool> pool);

 private:
  size_t count_;
  std::byte* base_;
};

}  // namespace metal_host
