// Gradients and vectorisation of the Gemm primitive, written with the package's own ops.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "csrc/epilogue_ops.h"
#include "csrc/gemm.h"
#include "csrc/ops.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace mlx_gemm {
namespace {

// What a product with x has as its gradient's factor.
mx::array transposed(const mx::array& x, const mx::Stream& s) {
  const mx::array transpose = mx::swapaxes(x, -2, -1, s);
  return x.dtype() == mx::complex64 ? mx::conjugate(transpose, s) : transpose;
}

// The gradient of a broadcast operand: sums over what broadcasting repeated.
mx::array sum_to(const mx::array& x, const mx::Shape& shape, const mx::Stream& s) {
  const int extra = static_cast<int>(x.ndim() - shape.size());
  std::vector<int> repeated;
  for (int axis = 0; axis < static_cast<int>(x.ndim()); ++axis) {
    if (axis < extra || (shape[axis - extra] == 1 && x.shape(axis) != 1)) {
      repeated.push_back(axis);
    }
  }
  if (repeated.empty()) {
    return x;
  }
  // MLX 0.32.4 can spin forever in the sum of an empty array that is not contiguous.
  mx::array sum = mx::sum(x.size() == 0 ? mx::contiguous(x, false, s) : x, repeated, true, s);
  std::vector<int> leading(extra);
  for (int axis = 0; axis < extra; ++axis) {
    leading[axis] = axis;
  }
  return leading.empty() ? sum : mx::squeeze(sum, leading, s);
}

// What the gradients' products share with the primitive: its alpha. Which kernel suits their shapes the policy decides.
GemmOptions scaled_by(float alpha) { return {.epilogue = {.alpha = alpha}}; }

// alpha a^T g, summed over the batch dimensions that b lacks.
mx::array gradient_of_b(const mx::array& a, const mx::array& b, const mx::array& g, float alpha, const mx::Stream& s) {
  const int64_t rows = std::accumulate(a.shape().begin(), a.shape().end() - 1, int64_t{1}, std::multiplies<>());
  if (b.ndim() > 2 || rows > std::numeric_limits<int32_t>::max()) {
    return sum_to(gemm({transposed(a, s), g}, scaled_by(alpha), s), b.shape(), s);
  }
  // One product over all rows does the summing.
  const mx::array a_rows = mx::flatten(a, 0, -2, s);
  const mx::array g_rows = mx::flatten(g, 0, -2, s);
  return gemm({transposed(a_rows, s), g_rows}, scaled_by(alpha), s);
}

// In the wide type: a factor need not fit a half type.
mx::array times(const mx::array& x, float factor, const mx::Stream& s) {
  const mx::Dtype type = wide(x.dtype());
  return factor == 1.0f ? x
                        : mx::astype(mx::multiply(mx::astype(x, type, s), mx::array(factor, type), s), x.dtype(), s);
}

// Half types that are multiplied into float32 have gradients computed in float32.
std::vector<mx::array> as_type(const std::vector<mx::array>& arrays, const mx::Dtype& type, const mx::Stream& s) {
  std::vector<mx::array> typed;
  for (const mx::array& x : arrays) {
    typed.push_back(mx::astype(x, type, s));
  }
  return typed;
}

// The inputs of a primitive by their roles.
struct Roles {
  const std::vector<mx::array>& inputs;
  const Epilogue& epilogue;

  enum Role { a, b, c, residual };
  Role of(int argument) const { return argument == 2 && !epilogue.has_c ? residual : static_cast<Role>(argument); }

  // What the activation is applied to, computed anew.
  mx::array before_activation(const mx::Stream& s) const {
    GemmOptions options = scaled_by(epilogue.alpha);
    options.epilogue.beta = epilogue.beta;
    const auto c = epilogue.has_c ? std::optional(inputs[2]) : std::nullopt;
    return gemm({inputs[0], inputs[1], {.c = c}}, options, s);
  }
};

}  // namespace

std::vector<mx::array> Gemm::vjp(const std::vector<mx::array>& given, const std::vector<mx::array>& cotangents,
                                 const std::vector<int>& argnums, const std::vector<mx::array>&) {
  const mx::Stream& s = stream();
  const std::vector<mx::array> primals = as_type(given, out_dtype_, s);
  const Roles roles{primals, epilogue_};
  const mx::array& a = primals[0];
  const mx::array& b = primals[1];
  mx::array g = cotangents[0];
  if (epilogue_.activation != Activation::none) {
    const auto activation = [&](const mx::array& z) { return activate(z, epilogue_.activation, s); };
    g = mx::vjp(activation, roles.before_activation(s), g).second;
  }
  std::vector<mx::array> gradients;
  for (const int argument : argnums) {
    switch (roles.of(argument)) {
      case Roles::a:
        gradients.push_back(sum_to(gemm({g, transposed(b, s)}, scaled_by(epilogue_.alpha), s), a.shape(), s));
        break;
      case Roles::b:
        gradients.push_back(gradient_of_b(a, b, g, epilogue_.alpha, s));
        break;
      case Roles::c:
        gradients.push_back(times(sum_to(g, primals[argument].shape(), s), epilogue_.beta, s));
        break;
      case Roles::residual:
        gradients.push_back(sum_to(cotangents[0], primals[argument].shape(), s));
    }
  }
  for (size_t i = 0; i < argnums.size(); ++i) {
    gradients[i] = mx::astype(gradients[i], given[argnums[i]].dtype(), s);
  }
  return gradients;
}

std::vector<mx::array> Gemm::jvp(const std::vector<mx::array>& given, const std::vector<mx::array>& given_tangents,
                                 const std::vector<int>& argnums) {
  const mx::Stream& s = stream();
  const std::vector<mx::array> primals = as_type(given, out_dtype_, s);
  const std::vector<mx::array> tangents = as_type(given_tangents, out_dtype_, s);
  const Roles roles{primals, epilogue_};
  const mx::Shape shape = product_shape("matmul", primals[0].shape(), primals[1].shape());
  const auto add = [&](std::optional<mx::array>& sum, const mx::array& term) {
    sum = sum ? mx::add(*sum, term, s) : term;
  };
  std::optional<mx::array> inner;  // the tangent of what the activation is applied to
  std::optional<mx::array> total;
  for (size_t i = 0; i < argnums.size(); ++i) {
    switch (roles.of(argnums[i])) {
      case Roles::a:
        add(inner, gemm({tangents[i], primals[1]}, scaled_by(epilogue_.alpha), s));
        break;
      case Roles::b:
        add(inner, gemm({primals[0], tangents[i]}, scaled_by(epilogue_.alpha), s));
        break;
      case Roles::c:
        add(inner, mx::broadcast_to(times(tangents[i], epilogue_.beta, s), shape, s));
        break;
      case Roles::residual:
        add(total, mx::broadcast_to(tangents[i], shape, s));
    }
  }
  if (inner && epilogue_.activation != Activation::none) {
    const auto activation = [&](const mx::array& z) { return activate(z, epilogue_.activation, s); };
    inner = mx::jvp(activation, roles.before_activation(s), *inner).second;
  }
  if (inner) {
    add(total, *inner);
  }
  return {*total};
}

// The mapped axis becomes the first batch dimension of every operand that has it.
std::pair<std::vector<mx::array>, std::vector<int>> Gemm::vmap(const std::vector<mx::array>& inputs,
                                                               const std::vector<int>& axes) {
  const auto unmapped_dims = [&](size_t i) { return static_cast<int>(inputs[i].ndim()) - (axes[i] >= 0 ? 1 : 0); };
  const int dims = std::max(unmapped_dims(0), unmapped_dims(1));
  // Axes of length 1 after the mapped one, so that broadcasting aligns it across operands. One by one: the vmap of MLX
  // 0.32.4's expand_dims misplaces several.
  const auto map_first = [&](size_t i) {
    if (axes[i] < 0) {
      return inputs[i];
    }
    mx::array first = mx::moveaxis(inputs[i], axes[i], 0, stream());
    for (int missing = dims - unmapped_dims(i); missing > 0; --missing) {
      first = mx::expand_dims(first, 1, stream());
    }
    return first;
  };

  const bool one_product = axes[0] < 0 && axes[1] < 0;
  const mx::Dtype composed = wide(out_dtype_);
  const auto addend = [&](size_t i) {
    return one_product ? mx::astype(map_first(i), composed, stream()) : map_first(i);
  };
  Addends addends;
  if (epilogue_.has_c) {
    addends.c = addend(2);
  }
  if (epilogue_.has_residual) {
    addends.residual = addend(inputs.size() - 1);
  }
  const GemmOptions options{.kernel = named_ ? kernel_ : nullptr, .epilogue = epilogue_, .out_dtype = out_dtype_};
  if (one_product) {
    // One product for all: only what is added to it is mapped.
    const GemmOptions product_only{.kernel = options.kernel, .out_dtype = composed};
    const mx::array product = gemm({inputs[0], inputs[1]}, product_only, stream());
    return {{mx::astype(apply_epilogue(product, addends, epilogue_, stream()), out_dtype_, stream())}, {0}};
  }
  return {{gemm({map_first(0), map_first(1), addends}, options, stream())}, {0}};
}

}  // namespace mlx_gemm
