#include "csrc/backends/cpu/workspace.h"

#include <array>
#include <cstdlib>
#include <memory>
#include <new>

namespace mlx_gemm {
namespace {

constexpr int64_t kAlignment = 64;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

struct Buffer {
  std::unique_ptr<void, Free> memory;
  int64_t bytes = 0;
};

}  // namespace

void* workspace(Workspace which, int64_t bytes) {
  thread_local std::array<Buffer, 6> buffers;
  Buffer& buffer = buffers[static_cast<size_t>(which)];
  if (buffer.bytes < bytes) {
    const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    buffer.memory.reset();
    buffer.bytes = 0;
    buffer.memory.reset(std::aligned_alloc(kAlignment, static_cast<size_t>(rounded)));
    if (buffer.memory == nullptr) {
      throw std::bad_alloc();
    }
    buffer.bytes = rounded;
  }
  return buffer.memory.get();
}

}  // namespace mlx_gemm
