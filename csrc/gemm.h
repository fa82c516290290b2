// The lazy GEMM primitive: D = activation(alpha A B + beta C) + residual, on a CPU stream or an Apple GPU.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/epilogue.h"
#include "csrc/layout.h"
#include "csrc/registry.h"
#include "csrc/select.h"
#include "mlx/primitives.h"

namespace mlx_gemm {

namespace mx = mlx::core;

// Of an inexact type.
Dtype dtype_of(const mx::Dtype& type);

// Shape of a[..., M, K] b[..., K, N], batch dimensions broadcast. Throws std::invalid_argument where they do not fit.
mx::Shape product_shape(std::string_view op, const mx::Shape& a, const mx::Shape& b);

// What multiplies, and where. A null kernel stands for BLAS or mx.matmul.
struct Executor {
  const KernelInfo* kernel;
  Backend backend;

  // On a CPU a named kernel of the ladder multiplies matrix by matrix, so that its own rules apply to M as the caller
  // sees it.
  bool joins_rows() const { return kernel == nullptr || kernel->fused() || backend == Backend::metal; }
};

// What of a product does not depend on shapes.
struct ProductKind {
  Dtype dtype = Dtype::float32;  // of a and b
  Dtype out = Dtype::float32;
  bool fuses = false;  // with an activation or a residual
};

// The product of two row-contiguous arrays of these shapes: what is known while an op is built. Where layouts and
// copies are concerned only eval knows: lazy arrays have no strides yet.
Problem problem_of(const mx::Shape& a, const mx::Shape& b, const ProductKind& kind, const Executor& executor);

// The product of arrays as they lie in memory.
Problem problem_of(const mx::array& a, const mx::array& b, const ProductKind& kind, const Executor& executor);

// Throws std::invalid_argument when `problem`, of operands of these shapes, is one that `kernel` cannot run on
// `device`.
void check_kernel(std::string_view op, const KernelInfo& kernel, const DeviceTraits& device, const Problem& problem);

// Throws std::invalid_argument where `addend`, called `name` in the message, does not broadcast to the product's shape.
void check_addend(std::string_view op, std::string_view name, const mx::Shape& addend, const mx::Shape& product);

GemmView view_operands(const mx::array& a, const mx::array& b, const Executor& executor);

// Inputs: a[..., M, K], b[..., K, N], then C and the residual where the epilogue has them, which broadcast to
// [..., M, N]. a and b are of one type and have at least two dimensions; nothing is broadcast yet. Addends are of that
// type too; the product is, or it is float32 where they are of a half type: the addends of production kernels are of
// its type.
class Gemm : public mx::UnaryPrimitive {
 public:
  // A null kernel stands for BLAS, on CPU streams only. Without an epilogue for float64 and complex64, and for kernels
  // of the ladder on a GPU.
  Gemm(mx::Stream stream, const Chosen& chosen, const Epilogue& epilogue, mx::Dtype out_dtype)
      : UnaryPrimitive(stream),
        kernel_(chosen.kernel),
        named_(chosen.named),
        epilogue_(epilogue),
        out_dtype_(out_dtype) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override;
  void eval_gpu(const std::vector<mx::array>& inputs, mx::array& out) override;

  std::vector<mx::array> jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>& tangents,
                             const std::vector<int>& argnums) override;
  std::vector<mx::array> vjp(const std::vector<mx::array>& primals, const std::vector<mx::array>& cotangents,
                             const std::vector<int>& argnums, const std::vector<mx::array>& outputs) override;
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override;

  // Without blanks: MLX puts the first word into its message when a function with this primitive is exported.
  const char* name() const override { return "mlx_gemm.Gemm(export_under_mlx_gemm.disabled())"; }
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override;

 private:
  ProductKind kind(const std::vector<mx::array>& inputs) const;

  const KernelInfo* kernel_;
  bool named_;
  Epilogue epilogue_;
  mx::Dtype out_dtype_;
};

}  // namespace mlx_gemm
