#include "csrc/backends/device_traits.h"

#include <cstdlib>
#include <string>
#include <variant>

#ifdef __APPLE__
#include <dlfcn.h>
#include <sys/sysctl.h>

#include "mlx/version.h"
#endif

#include "csrc/backends/apple_gpu.h"
#include "csrc/backends/cpu/blas.h"
#include "mlx/backend/gpu/device_info.h"

namespace mlx_gemm {
namespace {

// What MLX tells about the first GPU; a default where it does not.
template <class T>
T device_info(const char* key) {
  const auto& info = mlx::core::gpu::device_info(0);
  const auto found = info.find(key);
  return found == info.end() ? T{} : std::get<T>(found->second);
}

#ifdef __APPLE__
std::string os_version() {
  char text[32] = {};
  size_t size = sizeof(text) - 1;
  return sysctlbyname("kern.osproductversion", text, &size, nullptr, 0) == 0 ? text : "";
}

int libmlx_minimum_os() {
  Dl_info image;
  const bool found = dladdr(reinterpret_cast<const void*>(&mlx::core::version), &image) != 0;
  return found ? minimum_os(static_cast<const std::byte*>(image.dli_fbase)) : 0;
}

DeviceTraits read_gpu_traits() {
  return apple_gpu_traits({
      .architecture = device_info<std::string>("architecture"),
      .os_version = os_version(),
      .memory = static_cast<int64_t>(device_info<size_t>("memory_size")),
      .mlx_os = libmlx_minimum_os(),
      .tf32_setting = std::getenv("MLX_ENABLE_TF32"),
  });
}
#else
// cuBLAS multiplies float32 at TF32 precision when MLX lets it.
DeviceTraits read_gpu_traits() {
  DeviceTraits gpu;
  gpu.backend = Backend::cuda;
  gpu.architecture = device_info<std::string>("architecture");
  gpu.tf32 = gpu.tf32_enabled = tf32_enabled(std::getenv("MLX_ENABLE_TF32"));
  return gpu;
}
#endif

}  // namespace

const DeviceTraits& gpu_traits() {
  static const DeviceTraits gpu = read_gpu_traits();
  return gpu;
}

DeviceTraits device_traits(const mlx::core::Stream& stream) {
  if (stream.device == mlx::core::Device::cpu) {
    DeviceTraits cpu;
    cpu.blas = blas_loaded();
    return cpu;
  }
  return gpu_traits();
}

}  // namespace mlx_gemm
