// The public ops: validation, promotion, and the decision between our primitive and MLX's matmul.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "csrc/epilogue_ops.h"
#include "csrc/gemm.h"
#include "csrc/select.h"
#include "mlx/utils.h"

namespace mlx_gemm {

// Of one type and at least two dimensions.
struct GemmOperands {
  mx::array a;
  mx::array b;
  Addends addends = {};
};

struct GemmOptions {
  const KernelInfo* kernel = nullptr;       // nullptr: the policy chooses
  std::string_view op = "matmul";           // for messages
  Epilogue epilogue = {};                   // has_c and has_residual follow from the operands
  std::optional<mx::Dtype> out_dtype = {};  // float32 for operands of a half type; none: that of the operands
};

// D = activation(alpha A B + beta C) + residual: Gemm where it applies, else MLX's own ops.
mx::array gemm(const GemmOperands& operands, GemmOptions options, const mx::Stream& stream);

// What a caller may ask of any op.
struct Request {
  std::optional<std::string> kernel;
  std::optional<mx::Dtype> out_dtype;
  mx::StreamOrDevice stream;
};

// Shapes, promotion and 1-D operands as in mx.matmul.
mx::array matmul(const mx::array& a, const mx::array& b, const Request& request);

// activation(alpha a b + beta c), shapes and promotion as in mx.addmm. A factor of 0 ignores what it multiplies.
struct AddmmFactors {
  float alpha;
  float beta;
};
mx::array addmm(const mx::array& c, const mx::array& a, const mx::array& b, const AddmmFactors& factors,
                Activation activation, const Request& request);

// activation(x weight^T + bias) + residual; weight[N, K], bias[N].
struct LinearOperands {
  mx::array x;
  mx::array weight;
  std::optional<mx::array> bias;
  std::optional<mx::array> residual;
};
mx::array linear(const LinearOperands& operands, Activation activation, const Request& request);

// Throws std::invalid_argument with the nearest names. No name, no kernel.
const KernelInfo* kernel_named(std::string_view op, const std::optional<std::string>& name);

// Operands of mx.matmul as matrices of one type: a 1-D a is a row and a 1-D b a column.
GemmOperands matrices(std::string_view op, const mx::array& a, const mx::array& b, const mx::Dtype& type,
                      const mx::Stream& stream);

// The type that all of them promote to. Throws std::invalid_argument where that is not inexact.
mx::Dtype promoted_type(std::string_view op, std::span<const mx::Dtype> operands);

// float32 for half types: what their products are summed in, and may be returned in.
mx::Dtype wide(const mx::Dtype& type);

// Throws std::invalid_argument unless operands of type `promoted` can be multiplied into the type that was asked for.
void check_out_dtype(std::string_view op, const mx::Dtype& promoted, const std::optional<mx::Dtype>& asked);

// Axes of length 1 that `matrices` gives to 1-D operands.
std::vector<int> added_axes(const mx::array& a, const mx::array& b);

// An addend that broadcasts to the product without the added axes, with them.
mx::array with_axes(mx::array x, const std::vector<int>& axes, const mx::Stream& stream);

// The policy's choice for this thread.
Plan planned(const Problem& problem, const DeviceTraits& device, const KernelInfo* named);

// Throws std::invalid_argument when the named kernel cannot run the problem on `device`.
void check_named_kernel(const GemmOptions& options, const Problem& problem, const DeviceTraits& device);

}  // namespace mlx_gemm
