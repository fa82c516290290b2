#include "csrc/backends/cpu/workspace.h"

#include <array>

#include "csrc/backends/cpu/huge_pages.h"
#include "csrc/metal_host/aligned_bytes.h"

namespace mlx_gemm {
namespace {

struct Buffer {
  metal_host::AlignedBytes memory;
  int64_t bytes = 0;
};

}  // namespace

void* workspace(Workspace which, int64_t bytes) {
  thread_local std::array<Buffer, kWorkspaces> buffers;
  Buffer& buffer = buffers[static_cast<size_t>(which)];
  if (buffer.bytes < bytes) {
    // What is there goes first: both at once would be more than the product needs.
    buffer.memory.reset();
    buffer.bytes = 0;
    buffer.memory = metal_host::aligned_bytes(static_cast<size_t>(bytes));
    ask_for_huge_pages(buffer.memory.get(), bytes);
    buffer.bytes = bytes;
  }
  return buffer.memory.get();
}

}  // namespace mlx_gemm
