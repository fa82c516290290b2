// Products with few rows or columns: the lines of the large operand, which lie along K, are read once.
#pragma once

#include "csrc/backends/cpu/block_gemm.h"

namespace mlx_gemm {

bool suits_lines(const Problem& problem);

void multiply_lines(const CpuProduct& product);

}  // namespace mlx_gemm
