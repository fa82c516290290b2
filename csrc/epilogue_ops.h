// The epilogue as MLX ops: where no fused form runs, and as the source of gradients.
#pragma once

#include <optional>

#include "csrc/epilogue.h"
#include "mlx/array.h"
#include "mlx/stream.h"

namespace mlx_gemm {

namespace mx = mlx::core;

// What an epilogue adds to a product, each broadcast to its shape.
struct Addends {
  std::optional<mx::array> c = {};
  std::optional<mx::array> residual = {};
};

mx::array activate(mx::array x, Activation activation, const mx::Stream& stream);

// activation(alpha product + beta c) + residual, in the product's type.
mx::array apply_epilogue(mx::array product, const Addends& addends, const Epilogue& epilogue, const mx::Stream& stream);

}  // namespace mlx_gemm
