// Whether the ops of this thread are built as MLX's own, as mlx_gemm.disabled() asks.
#pragma once

namespace mlx_gemm {

inline int& disabled_depth() {
  thread_local int depth = 0;
  return depth;
}

inline bool is_disabled() { return disabled_depth() > 0; }

}  // namespace mlx_gemm
