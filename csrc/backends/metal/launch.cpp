#include "csrc/backends/metal/launch.h"

#include <stdexcept>
#include <string>

#include "csrc/backends/metal/kernel_sources.h"
#include "mlx/backend/metal/device.h"

namespace mlx_gemm {
namespace {

namespace metal = mlx::core::metal;

// One library per kernel, kept by MLX's device. Fast math would let the compiler reorder sums.
MTL::ComputePipelineState* pipeline_of(const KernelInfo& kernel, metal::Device& device) {
  const std::string name(kernel.name);
  mlx::core::CompileOptions options;
  options.math_mode = mlx::core::MathMode::Safe;
  try {
    MTL::Library* library = device.get_library("mlx_gemm_" + name, options, [&] { return kernel_source(kernel.name); });
    return device.get_kernel(name, library);
  } catch (const std::exception& error) {
    throw std::runtime_error("[mlx_gemm] kernel " + name + " does not compile here: " + error.what());
  }
}

}  // namespace

void launch_on_gpu(const LaunchRecord& record, const LaunchArrays<mlx::core::array>& arrays,
                   const mlx::core::Stream& stream) {
  const KernelInfo& kernel = *record.kernel;
  MTL::ComputePipelineState* pipeline = pipeline_of(kernel, metal::device(stream.device));
  const auto limit = static_cast<int>(pipeline->maxTotalThreadsPerThreadgroup());
  if (limit < kernel.threadgroup_threads()) {
    throw std::runtime_error("[mlx_gemm] kernel " + std::string(kernel.name) + " needs " +
                             std::to_string(kernel.threadgroup_threads()) +
                             " threads per threadgroup, this GPU gives " + std::to_string(limit));
  }
  encode(record, arrays, pipeline, metal::get_command_encoder(stream));
}

}  // namespace mlx_gemm
