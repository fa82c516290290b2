// For builds without Metal: ops on their GPU streams are built without our primitive.
#include <stdexcept>

#include "csrc/backends/metal/launch.h"

namespace mlx_gemm {

void launch_on_gpu(const LaunchRecord&, const LaunchArrays<mlx::core::array>&, const mlx::core::Stream&) {
  throw std::runtime_error("[mlx_gemm] this build has no Metal backend");
}

}  // namespace mlx_gemm
