#include "csrc/backends/apple_gpu.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace mlx_gemm {
namespace {

// Where MLX multiplies float32 on the neural accelerators, at TF32 precision: from macOS 26.2 on, with generation 17,
// or 18 on phones, whose architecture names end in p, and only where libmlx was built for 26.2.
bool has_tf32_kernels(const DeviceTraits& gpu) {
  constexpr int kFirstOs = 2602;
  const int first_generation = gpu.architecture.ends_with('p') ? 18 : 17;
  const bool built = gpu.mlx_os == 0 || gpu.mlx_os >= kFirstOs;  // 0: not known
  return built && gpu.os >= kFirstOs && gpu.generation >= first_generation;
}

uint32_t word(const std::byte* image, size_t offset) {
  uint32_t value;
  std::memcpy(&value, image + offset, sizeof(value));
  return value;
}

}  // namespace

DeviceTraits apple_gpu_traits(const AppleGpuFacts& facts) {
  DeviceTraits gpu;
  gpu.backend = Backend::metal;
  gpu.architecture = facts.architecture;
  gpu.generation = apple_gpu_generation(facts.architecture);
  gpu.os = parse_os_version(facts.os_version);
  gpu.memory = facts.memory;
  gpu.mlx_os = facts.mlx_os;
  gpu.tf32_enabled = tf32_enabled(facts.tf32_setting);
  gpu.tf32 = gpu.tf32_enabled && has_tf32_kernels(gpu);
  return gpu;
}

bool tf32_enabled(const char* setting) { return setting == nullptr || std::atoi(setting) != 0; }

int apple_gpu_generation(std::string_view architecture) {
  const size_t mark = architecture.rfind("_g");
  int generation = 0;
  if (mark != std::string_view::npos) {
    std::from_chars(architecture.data() + mark + 2, architecture.data() + architecture.size(), generation);
  }
  return generation;
}

int parse_os_version(std::string_view text) {
  int major = 0;
  int minor = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, major);
  if (error == std::errc() && rest != end && *rest == '.') {
    std::from_chars(rest + 1, end, minor);
  }
  return 100 * major + minor;
}

int minimum_os(const std::byte* image) {
  // mach_header_64: magic, processor (2), file type, number of commands, their bytes, flags, reserved.
  constexpr uint32_t kMagic64 = 0xfeedfacf;
  constexpr size_t kHeaderBytes = 32;
  // build_version_command: command, its bytes, platform, minimum OS as xxxx.yy.zz.
  constexpr uint32_t kBuildVersion = 0x32;
  constexpr uint32_t kMacOs = 1;
  if (word(image, 0) != kMagic64) {
    return 0;
  }
  const uint32_t commands = word(image, 16);
  size_t at = kHeaderBytes;
  for (uint32_t i = 0; i < commands; ++i) {
    if (word(image, at) == kBuildVersion && word(image, at + 8) == kMacOs) {
      const uint32_t version = word(image, at + 12);
      return static_cast<int>(100 * (version >> 16) + (version >> 8 & 0xff));
    }
    at += word(image, at + 4);
  }
  return 0;
}

std::string describe(const DeviceTraits& gpu) {
  const auto macos = [](int version) {
    return version == 0 ? std::string("unknown") : std::to_string(version / 100) + "." + std::to_string(version % 100);
  };
  std::ostringstream text;
  text << gpu.architecture << ", generation " << gpu.generation << ", macOS " << macos(gpu.os) << ", "
       << (gpu.memory >> 30) << " GiB, MLX for macOS " << macos(gpu.mlx_os) << ", MLX_ENABLE_TF32 "
       << (gpu.tf32_enabled ? "on" : "off");
  return text.str();
}

}  // namespace mlx_gemm
