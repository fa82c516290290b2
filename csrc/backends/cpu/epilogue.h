// The epilogue of a product on a CPU, block by block.
#pragma once

#include <vector>

#include "csrc/backends/cpu/row_kernels.h"
#include "csrc/epilogue.h"
#include "csrc/problem.h"

namespace mlx_gemm {

// An array added to a product: one stride per dimension of the product, 0 where it is broadcast.
struct CpuAddend {
  const void* data = nullptr;
  Dtype dtype = Dtype::float32;  // or a half type
  std::vector<int64_t> strides;
};

// Part of D, whose batch dimensions count as rows.
struct Region {
  int64_t row;
  int64_t rows;
  int64_t column;
  int64_t columns;
};

struct CpuEpilogue {
  Epilogue epilogue;
  std::vector<int> shape;  // of D, row-contiguous
  Dtype dtype;             // of D
  void* d;
  CpuAddend c;
  CpuAddend residual;

  // Stores activation(alpha x + beta c) + residual in a region of D and changes x, which may be the region itself.
  // Float32 only, or half types in D: nothing else has an epilogue.
  void finish(const Region& region, float* x, int64_t ld, float alpha) const;

  // The address of an element of D.
  void* at(int64_t row, int64_t column) const;

 private:
  void store(const Region& region, const FloatRows& x) const;
};

}  // namespace mlx_gemm
