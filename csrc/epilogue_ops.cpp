#include "csrc/epilogue_ops.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "mlx/ops.h"

namespace mlx_gemm {
namespace {

mx::array scaled(mx::array x, double factor, const mx::Stream& s) {
  return factor == 1.0 ? std::move(x) : mx::multiply(x, mx::array(factor, x.dtype()), s);
}

mx::array plus_one(const mx::array& x, const mx::Stream& s) { return mx::add(x, mx::array(1.0, x.dtype()), s); }

mx::array gelu_tanh(const mx::array& x, const mx::Stream& s) {
  const mx::array cube = mx::multiply(x, mx::multiply(x, x, s), s);
  const mx::array inner = mx::add(x, scaled(cube, 0.044715, s), s);
  const mx::array weight = plus_one(mx::tanh(scaled(inner, std::sqrt(2.0 / std::numbers::pi), s), s), s);
  return scaled(mx::multiply(x, weight, s), 0.5, s);
}

}  // namespace

mx::array activate(mx::array x, Activation activation, const mx::Stream& s) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return mx::maximum(x, mx::array(0.0, x.dtype()), s);
    case Activation::gelu: {
      const mx::array weight = plus_one(mx::erf(scaled(x, 1.0 / std::numbers::sqrt2, s), s), s);
      return scaled(mx::multiply(x, weight, s), 0.5, s);
    }
    case Activation::gelu_tanh:
      return gelu_tanh(x, s);
    case Activation::silu:
      return mx::multiply(x, mx::sigmoid(x, s), s);
  }
  return x;
}

mx::array apply_epilogue(mx::array product, const Addends& addends, const Epilogue& epilogue, const mx::Stream& s) {
  mx::array result = scaled(std::move(product), epilogue.alpha, s);
  if (addends.c) {
    result = mx::add(result, scaled(*addends.c, epilogue.beta, s), s);
  }
  result = activate(std::move(result), epilogue.activation, s);
  return addends.residual ? mx::add(result, *addends.residual, s) : result;
}

}  // namespace mlx_gemm
