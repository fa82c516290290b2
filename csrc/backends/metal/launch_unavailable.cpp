// For builds without Metal: ops on their GPU streams are built without our primitive.
#include <stdexcept>

#include "csrc/backends/metal/launch.h"

namespace mlx_gemm {
namespace {

[[noreturn]] void reject() { throw std::runtime_error("[mlx_gemm] this build has no Metal backend"); }

}  // namespace

int thread_limit(LaunchRecord, const mlx::core::Stream&) { reject(); }

void launch_on_gpu(const LaunchSequence&, const ProductArrays<mlx::core::array>&, const mlx::core::Stream&) {
  reject();
}

}  // namespace mlx_gemm
