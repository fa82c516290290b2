// What the selector needs to know about the device behind an MLX stream.
#pragma once

#include "csrc/problem.h"
#include "mlx/stream.h"

namespace mlx_gemm {

DeviceTraits device_traits(const mlx::core::Stream& stream);

// What MLX would run on if nobody names a device but the CPU. Throws where there is no GPU.
const DeviceTraits& gpu_traits();

}  // namespace mlx_gemm
