// The BLAS of CPU streams: an OpenBLAS found at run time.
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

// C[M, N] = alpha A[M, K] B[K, N]. M, N, K >= 1; C is row-contiguous.
void blas_gemm(const Problem& problem, float alpha, const float* a, const float* b, float* c);

}  // namespace mlx_gemm
