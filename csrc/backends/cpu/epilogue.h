// The epilogue of a product in memory, on a CPU.
#pragma once

#include "csrc/epilogue.h"
#include "mlx/array.h"

namespace mlx_gemm {

namespace mx = mlx::core;

// An array added to a product: one stride per dimension of the product, 0 where it is broadcast.
struct CpuAddend {
  const float* data = nullptr;
  std::vector<int64_t> strides;
};

struct CpuEpilogue {
  Epilogue epilogue;
  std::vector<int> shape;  // of the product, row-contiguous
  CpuAddend c;
  CpuAddend residual;

  // d = activation(alpha d + beta c) + residual. BLAS has already multiplied by its alpha: `alpha` is what is left.
  void apply(float* d, float alpha) const;
};

}  // namespace mlx_gemm
