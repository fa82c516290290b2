// Copies an operand that neither BLAS nor a kernel can address.
#pragma once

#include "csrc/layout.h"

namespace mlx_gemm {

struct Elements {
  const void* data;
  int64_t bytes;  // of each: 2, 4 or 8
};

// Writes the elements in row-major order. Any strides: negative, zero, overlapping.
void copy_row_contiguous(const Elements& from, const Strided& layout, void* to);

}  // namespace mlx_gemm
