// What an Apple GPU and the MLX that drives it are, read from what the system tells about them. Pure C++.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "csrc/problem.h"

namespace mlx_gemm {

// As the system gives them.
struct AppleGpuFacts {
  std::string architecture;       // of the Metal device
  std::string os_version;         // "26.2.1"
  int64_t memory = 0;             // bytes
  int mlx_os = 0;                 // macOS that libmlx was built for
  const char* tf32_setting = {};  // MLX_ENABLE_TF32, nullptr where it is not set
};

DeviceTraits apple_gpu_traits(const AppleGpuFacts& facts);

// MLX's own switch: on unless it is set to 0.
bool tf32_enabled(const char* setting);

// 17 for "applegpu_g17g"; 0 where the name has no generation.
int apple_gpu_generation(std::string_view architecture);

// 2602 for "26.2.1"; 0 for what is no version.
int parse_os_version(std::string_view text);

// The oldest macOS that a loaded library runs on, 1400 or later; 0 where its load commands do not tell. `image` is the
// Mach-O header in memory.
int minimum_os(const std::byte* image);

// "applegpu_g17g, generation 17, macOS 26.2, 32 GiB, MLX for macOS 26.2, MLX_ENABLE_TF32 on", for people.
std::string describe(const DeviceTraits& gpu);

}  // namespace mlx_gemm
