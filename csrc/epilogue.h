// What a GEMM does to its product before it is stored: D = activation(alpha A B + beta C) + residual. Pure C++.
#pragma once

namespace mlx_gemm {

enum class Activation {
  none,
  relu,       // max(x, 0)
  gelu,       // x (1 + erf(x / sqrt 2)) / 2
  gelu_tanh,  // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
  silu,       // x / (1 + exp(-x))
};

struct Epilogue {
  float alpha = 1.0f;
  float beta = 1.0f;
  bool has_c = false;
  bool has_residual = false;
  Activation activation = Activation::none;

  // The product is the result.
  bool is_identity() const { return alpha == 1.0f && !has_c && !has_residual && activation == Activation::none; }
  // More than mx.addmm can do.
  bool fuses() const { return has_residual || activation != Activation::none; }
  bool operator==(const Epilogue&) const = default;
};

constexpr const char* to_string(Activation activation) {
  switch (activation) {
    case Activation::none:
      return "none";
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::silu:
      return "silu";
  }
  return "?";
}

}  // namespace mlx_gemm
