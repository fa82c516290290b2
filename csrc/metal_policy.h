// Which kernel an Apple GPU runs by itself: an ordered table of kernels with evidence, or of what MLX cannot do.
#pragma once

#include <span>
#include <string_view>

#include "csrc/problem.h"

namespace mlx_gemm {

// Why a row is there, which decides when it counts.
enum class Need {
  speed,     // reported to be faster than MLX's kernel
  exact,     // MLX would multiply float32 at TF32 precision
  one_pass,  // MLX would take several: an activation, a residual, or float32 from half types
};

struct PolicyRow {
  std::string_view kernel;
  Need need;
  std::string_view dtypes;  // comma-separated
  int first_generation = 13;
  std::string_view classes = {};  // last letters of architecture names; empty: every one
  std::string_view layouts = {};  // comma-separated; empty: every one
  int64_t max_M = INT64_MAX;
  int64_t max_N = INT64_MAX;
  std::string_view reason;
  std::string_view evidence;  // where the choice of this kernel among ours comes from
};

std::span<const PolicyRow> metal_policy();

// Whether the row speaks of this problem on this device. Its kernel may still be unable to run it.
bool applies(const PolicyRow& row, const Problem& problem, const DeviceTraits& device);

}  // namespace mlx_gemm
