// Products in float32 by the register-blocked micro-kernel of csrc/metal_host/micro_kernel.h.
#pragma once

#include "csrc/backends/cpu/block_gemm.h"

namespace mlx_gemm {

// Whether this CPU's micro-kernel outruns OpenBLAS, and packing pays.
bool suits_float_panels(const Problem& problem);

// Float32 and half types, which become float32 as they are packed. The sums of a row depend on its numbers alone: not
// on where it lies, on other rows, nor on threads.
void multiply_float_panels(const CpuProduct& product);

}  // namespace mlx_gemm
