// Scratch memory that a thread keeps from one product to the next.
#pragma once

#include <cstdint>

namespace mlx_gemm {

enum class Workspace { a, b, sums, addend, a_panels, b_panels, shared_rows, shared_panels };
constexpr int kWorkspaces = 8;

// At least `bytes`, aligned for any vector, with what the last use left there. The next call for the same buffer on
// this thread may move it.
void* workspace(Workspace buffer, int64_t bytes);

inline float* float_workspace(Workspace buffer, int64_t count) {
  return static_cast<float*>(workspace(buffer, count * static_cast<int64_t>(sizeof(float))));
}

}  // namespace mlx_gemm
