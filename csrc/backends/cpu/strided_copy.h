// Copies an operand that neither BLAS nor a kernel can address.
#pragma once

#include "csrc/layout.h"

namespace mlx_gemm {

// Writes the elements in row-major order. Any strides: negative, zero, overlapping.
void copy_row_contiguous(const float* from, const Strided& layout, float* to);

}  // namespace mlx_gemm
