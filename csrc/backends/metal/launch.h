// Runs launches on an Apple GPU through MLX's own command encoder.
#pragma once

#include "csrc/backends/launch_record.h"
#include "csrc/backends/metal/encode.h"
#include "mlx/array.h"
#include "mlx/stream.h"

namespace mlx_gemm {

// Compiles the kernel when it is first used. Throws std::runtime_error with the kernel's name and the compiler's log,
// or when this GPU cannot give its threadgroup as many threads as it needs.
void launch_on_gpu(const LaunchRecord& record, const LaunchArrays<mlx::core::array>& arrays,
                   const mlx::core::Stream& stream);

}  // namespace mlx_gemm
