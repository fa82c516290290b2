#include "csrc/backends/device_traits.h"

#include <charconv>
#include <cstdlib>
#include <string>
#include <variant>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include "csrc/backends/cpu/blas.h"
#include "mlx/backend/gpu/device_info.h"

namespace mlx_gemm {
namespace {

#ifdef __APPLE__
constexpr Backend kGpuBackend = Backend::metal;

int os_version() {
  char text[32] = {};
  size_t size = sizeof(text) - 1;
  if (sysctlbyname("kern.osproductversion", text, &size, nullptr, 0) != 0) {
    return 0;
  }
  char* rest = nullptr;
  const long major = std::strtol(text, &rest, 10);
  const long minor = *rest == '.' ? std::strtol(rest + 1, nullptr, 10) : 0;
  return static_cast<int>(100 * major + minor);
}
#else
constexpr Backend kGpuBackend = Backend::cuda;

int os_version() { return 0; }
#endif

// MLX's own switch, on unless it is set to 0.
bool tf32_enabled() {
  const char* value = std::getenv("MLX_ENABLE_TF32");
  return value == nullptr || std::atoi(value) != 0;
}

// Where MLX multiplies float32 on the neural accelerators, at TF32 precision: macOS 26.2 with generation 17, or 18 on
// phones, whose architecture names end in p. On CUDA cuBLAS does the same.
bool multiplies_at_tf32(const DeviceTraits& device) {
  if (!tf32_enabled()) {
    return false;
  }
  const int first_generation = device.architecture.ends_with('p') ? 18 : 17;
  return device.backend == Backend::cuda || (device.os >= 2602 && device.generation >= first_generation);
}

DeviceTraits gpu_traits() {
  DeviceTraits device;
  device.backend = kGpuBackend;
  const auto& info = mlx::core::gpu::device_info(0);
  if (const auto found = info.find("architecture"); found != info.end()) {
    device.architecture = std::get<std::string>(found->second);
  }
  device.generation = apple_gpu_generation(device.architecture);
  device.os = os_version();
  device.tf32 = multiplies_at_tf32(device);
  return device;
}

}  // namespace

int apple_gpu_generation(std::string_view architecture) {
  const size_t mark = architecture.rfind("_g");
  int generation = 0;
  if (mark != std::string_view::npos) {
    std::from_chars(architecture.data() + mark + 2, architecture.data() + architecture.size(), generation);
  }
  return generation;
}

DeviceTraits device_traits(const mlx::core::Stream& stream) {
  if (stream.device == mlx::core::Device::cpu) {
    DeviceTraits cpu;
    cpu.blas = blas_loaded();
    return cpu;
  }
  static const DeviceTraits gpu = gpu_traits();
  return gpu;
}

}  // namespace mlx_gemm
