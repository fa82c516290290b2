#include "csrc/backends/cpu/huge_pages.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace mlx_gemm {

void ask_for_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] int64_t bytes) {
#ifdef __linux__
  constexpr int64_t kWorthwhile = 4 << 20;
  constexpr uintptr_t kPage = 2 << 20;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + static_cast<uintptr_t>(bytes)) / kPage * kPage;
  if (bytes >= kWorthwhile && begin < end) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // advice: a refusal changes nothing
  }
#endif
}

}  // namespace mlx_gemm
