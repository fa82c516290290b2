// Products of bfloat16 by the micro-kernels of bfloat_panels.h.
#pragma once

#include "csrc/backends/cpu/block_gemm.h"

namespace mlx_gemm {

// Whether this CPU multiplies bfloat16, and packing pays.
bool suits_bfloat_panels(const Problem& problem);

// Blocks whose operands are so small that sums could be denormal, which the micro-kernels take for zero, are multiplied
// by multiply_block().
void multiply_bfloat_panels(const CpuProduct& product);

}  // namespace mlx_gemm
