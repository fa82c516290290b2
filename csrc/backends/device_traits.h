// What the selector needs to know about the device behind an MLX stream.
#pragma once

#include <string_view>

#include "csrc/problem.h"
#include "mlx/stream.h"

namespace mlx_gemm {

DeviceTraits device_traits(const mlx::core::Stream& stream);

// 17 for "applegpu_g17g"; 0 where the name has no generation.
int apple_gpu_generation(std::string_view architecture);

}  // namespace mlx_gemm
