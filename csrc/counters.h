// Process-wide event counts: tests read them to see which path ran.
#pragma once

#include <atomic>
#include <cstdint>

namespace mlx_gemm {

struct EventCounters {
  std::atomic<int64_t> gemm_evals = 0;     // Gemm primitives evaluated
  std::atomic<int64_t> blas_calls = 0;     // sgemm and sgemv calls
  std::atomic<int64_t> host_launches = 0;  // kernels run by the Metal host runtime
  std::atomic<int64_t> copies = 0;         // operands copied because no layout addressed them
  std::atomic<int64_t> lowered = 0;        // ops built as MLX's own matmul or addmm
};

inline EventCounters& counters() {
  static EventCounters counters;
  return counters;
}

}  // namespace mlx_gemm
