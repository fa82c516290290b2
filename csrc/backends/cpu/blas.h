// The BLAS of CPU streams: an OpenBLAS found at run time. It runs on the thread that calls it; csrc/thread_pool.h
// shares products out.
#pragma once

#include <string>

#include "csrc/problem.h"

namespace mlx_gemm {

// Loads the shared library at `path`, whose symbols carry the prefix "scipy_". Throws std::runtime_error with the
// loader's reason. The first library that loads stays for the life of the process.
void load_blas(const std::string& path);

bool blas_loaded();

// OpenBLAS's own description of its build and CPU; empty when none is loaded.
std::string blas_config();

// An operand as BLAS addresses it: row-contiguous, or column-contiguous where it is transposed.
struct BlasMatrix {
  const void* data;
  int64_t ld;
  bool transposed;
};

// C[M, N] = alpha A[M, K] B[K, N], or C += that. M, N, K >= 1; C is row-contiguous with leading dimension ldc.
struct BlasProduct {
  Dtype dtype;  // float32, float64 or complex64
  int64_t M;
  int64_t N;
  int64_t K;
  BlasMatrix a;
  BlasMatrix b;
  float alpha;
  bool accumulate;
  void* c;
  int64_t ldc;
};

void blas_gemm(const BlasProduct& product);

}  // namespace mlx_gemm
