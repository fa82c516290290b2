// Memory for large results.
#pragma once

#include <cstdint>

namespace mlx_gemm {

// Asks for large pages under memory that nobody has touched yet: a large result is a fresh mapping, and as many page
// faults as it has pages can take longer than the product. Does nothing for small memory, or where the system has no
// such pages.
void ask_for_huge_pages(void* memory, int64_t bytes);

}  // namespace mlx_gemm
