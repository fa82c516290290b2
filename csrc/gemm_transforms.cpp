// Gradients and vectorisation of the Gemm primitive, written with the package's own ops.
#include <algorithm>
#include <vector>

#include "csrc/gemm.h"
#include "csrc/ops.h"
#include "mlx/ops.h"

namespace mlx_gemm {
namespace {

mx::array transposed(const mx::array& x, const mx::Stream& s) { return mx::swapaxes(x, -2, -1, s); }

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
  // MLX 0.32.4 can spin forever in the sum of an empty array. A trace that is kept for other shapes must not keep this.
  if (x.size() == 0 && !x.is_tracer()) {
    return mx::zeros(shape, x.dtype(), s);
  }
  mx::array sum = mx::sum(x, repeated, true, s);
  std::vector<int> leading(extra);
  for (int axis = 0; axis < extra; ++axis) {
    leading[axis] = axis;
  }
  return leading.empty() ? sum : mx::squeeze(sum, leading, s);
}

// a^T g, summed over the batch dimensions that b lacks.
mx::array gradient_of_b(const mx::array& a, const mx::array& b, const mx::array& g, const mx::Stream& s) {
  if (b.ndim() > 2) {
    return sum_to(gemm(transposed(a, s), g, {}, s), b.shape(), s);
  }
  // One product over all rows does the summing.
  const mx::array a_rows = mx::flatten(a, 0, -2, s);
  const mx::array g_rows = mx::flatten(g, 0, -2, s);
  return gemm(transposed(a_rows, s), g_rows, {}, s);
}

}  // namespace

// The gradients' shapes need not suit the kernel that was named for the product: the policy chooses theirs.
std::vector<mx::array> Gemm::vjp(const std::vector<mx::array>& primals, const std::vector<mx::array>& cotangents,
                                 const std::vector<int>& argnums, const std::vector<mx::array>&) {
  const mx::array& a = primals[0];
  const mx::array& b = primals[1];
  const mx::array& g = cotangents[0];
  std::vector<mx::array> gradients;
  for (const int argument : argnums) {
    switch (argument) {
      case 0:
        gradients.push_back(sum_to(gemm(g, transposed(b, stream()), {}, stream()), a.shape(), stream()));
        break;
      case 1:
        gradients.push_back(gradient_of_b(a, b, g, stream()));
        break;
      default:
        gradients.push_back(sum_to(g, primals[2].shape(), stream()));
    }
  }
  return gradients;
}

std::vector<mx::array> Gemm::jvp(const std::vector<mx::array>& primals, const std::vector<mx::array>& tangents,
                                 const std::vector<int>& argnums) {
  const mx::Shape shape = product_shape("matmul", primals[0].shape(), primals[1].shape());
  std::optional<mx::array> total;
  for (size_t i = 0; i < argnums.size(); ++i) {
    const mx::array term = argnums[i] == 0   ? gemm(tangents[i], primals[1], {}, stream())
                           : argnums[i] == 1 ? gemm(primals[0], tangents[i], {}, stream())
                                             : mx::broadcast_to(tangents[i], shape, stream());
    total = total ? mx::add(*total, term, stream()) : term;
  }
  return {*total};
}

// The mapped axis becomes the first batch dimension of every operand that has it.
std::pair<std::vector<mx::array>, std::vector<int>> Gemm::vmap(const std::vector<mx::array>& inputs,
                                                               const std::vector<int>& axes) {
  const auto unmapped_dims = [&](int i) { return static_cast<int>(inputs[i].ndim()) - (axes[i] >= 0 ? 1 : 0); };
  const int dims = std::max(unmapped_dims(0), unmapped_dims(1));
  // Axes of length 1 after the mapped one, so that broadcasting aligns it across operands.
  const auto map_first = [&](int i) {
    if (axes[i] < 0) {
      return inputs[i];
    }
    std::vector<int> filler(dims - unmapped_dims(i));
    for (size_t j = 0; j < filler.size(); ++j) {
      filler[j] = static_cast<int>(j) + 1;
    }
    const mx::array first = mx::moveaxis(inputs[i], axes[i], 0, stream());
    return filler.empty() ? first : mx::expand_dims(first, filler, stream());
  };

  const GemmOptions options{.kernel = named_ ? kernel_ : nullptr};
  const mx::array a = map_first(0);
  const mx::array b = map_first(1);
  if (inputs.size() == 2) {
    return {{gemm(a, b, options, stream())}, {0}};
  }
  if (axes[2] >= 0) {
    return {{mx::add(gemm(a, b, options, stream()), map_first(2), stream())}, {0}};
  }
  return {{gemm(a, b, options, stream(), inputs[2])}, {0}};
}

}  // namespace mlx_gemm
