// Runs launches on an Apple GPU through MLX's own command encoder.
#pragma once

#include "csrc/backends/launch_sequence.h"
#include "csrc/backends/metal/encode.h"
#include "mlx/array.h"
#include "mlx/stream.h"

namespace mlx_gemm {

// Threads per threadgroup that this GPU allows the launch's kernel: fewer than Metal's 1024 where it needs many
// registers. Compiles the kernel when it is first used; throws std::runtime_error with its name and the compiler's log.
int thread_limit(LaunchRecord record, const mlx::core::Stream& stream);

// Throws std::runtime_error as thread_limit does, and for a kernel that is not allowed its threads.
void launch_on_gpu(const LaunchSequence& sequence, const ProductArrays<mlx::core::array>& arrays,
                   const mlx::core::Stream& stream);

}  // namespace mlx_gemm
