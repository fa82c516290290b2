// The public ops: validation, promotion, and the decision between our primitive and MLX's matmul.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "csrc/gemm.h"
#include "csrc/select.h"
#include "mlx/utils.h"

namespace mlx_gemm {

struct GemmOptions {
  const KernelInfo* kernel = nullptr;  // nullptr: the policy chooses
  std::string_view op = "matmul";      // for messages
};

// Throws std::invalid_argument with the nearest names. No name, no kernel.
const KernelInfo* kernel_named(std::string_view op, const std::optional<std::string>& name);

// Shapes, promotion and 1-D operands as in mx.matmul.
mx::array matmul(const mx::array& a, const mx::array& b, const std::optional<std::string>& kernel,
                 const mx::StreamOrDevice& stream);

// x weight^T + bias; weight[N, K], bias[N].
mx::array linear(const mx::array& x, const mx::array& weight, const std::optional<mx::array>& bias,
                 const std::optional<std::string>& kernel, const mx::StreamOrDevice& stream);

// The product of promoted operands of at least two dimensions, plus bias[N]: Gemm where it applies, else MLX's op.
mx::array gemm(const mx::array& a, const mx::array& b, const GemmOptions& options, const mx::Stream& stream,
               const std::optional<mx::array>& bias = {});

// What a call would run on operands as they lie in memory.
struct Explanation {
  Problem problem;
  Plan plan;
};

// Evaluates the operands.
Explanation explain(const mx::array& a, const mx::array& b, const std::optional<std::string>& kernel,
                    const std::optional<mx::array>& bias, const mx::StreamOrDevice& stream);

std::string to_string(const Explanation& explanation);

}  // namespace mlx_gemm
