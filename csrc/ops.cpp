#include "csrc/ops.h"

#include <algorithm>

#include "csrc/backends/device_traits.h"
#include "csrc/check.h"
#include "csrc/counters.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace mlx_gemm {
namespace {

Dtype dtype_of(const mx::array& x) {
  switch (x.dtype().val()) {
    case mx::Dtype::Val::float16:
      return Dtype::float16;
    case mx::Dtype::Val::bfloat16:
      return Dtype::bfloat16;
    case mx::Dtype::Val::float64:
      return Dtype::float64;
    case mx::Dtype::Val::complex64:
      return Dtype::complex64;
    default:  // promotion left only inexact types
      return Dtype::float32;
  }
}

mx::Dtype promoted_type(std::string_view op, const mx::array& a, const mx::array& b,
                        const std::optional<mx::array>& bias = {}) {
  const mx::Dtype type = bias ? mx::result_type(a, b, *bias) : mx::result_type(a, b);
  if (!mx::issubdtype(type, mx::inexact)) {
    reject(op, "expected operands that promote to a floating-point or complex type, got ", a.dtype(), " and ",
           b.dtype());
  }
  return type;
}

// Operands of mx.matmul as matrices: promoted, a 1-D a as a row and a 1-D b as a column.
struct Matrices {
  mx::array a;
  mx::array b;
};

Matrices matrices(std::string_view op, const mx::array& a, const mx::array& b, const mx::Stream& s) {
  if (a.ndim() == 0 || b.ndim() == 0) {
    reject(op, "expected operands with at least one dimension, got a=", a.shape(), " b=", b.shape());
  }
  const mx::Dtype type = promoted_type(op, a, b);
  const auto matrix = [&](const mx::array& x, int new_axis) {
    const mx::array typed = mx::astype(x, type, s);
    return x.ndim() == 1 ? mx::expand_dims(typed, new_axis, s) : typed;
  };
  return {matrix(a, 0), matrix(b, 1)};
}

// Candidates that lose for the same reason, in the order of the first; a reason that names its candidate is told
// without.
std::vector<std::pair<std::string, std::string>> rejections_by_reason(const Plan& plan) {
  std::vector<std::pair<std::string, std::string>> groups;
  for (const auto& [candidate, reason] : plan.rejected) {
    const std::string rule = reason.starts_with(candidate + " ") ? reason.substr(candidate.size() + 1) : reason;
    const auto group = std::ranges::find(groups, rule, [](const auto& entry) { return entry.first; });
    if (group == groups.end()) {
      groups.emplace_back(rule, candidate);
    } else {
      group->second += ", " + candidate;
    }
  }
  return groups;
}

void check_lowering(std::string_view op, Dtype dtype, const DeviceTraits& device) {
  if (lowering_loses_precision(dtype, device)) {
    reject(op, "float32 must not lose precision, and on ", to_string(device.backend), " device ", device.architecture,
           " mx.matmul multiplies float32 at TF32 precision: set MLX_ENABLE_TF32=0 before the process starts");
  }
}

void check_forced(const GemmOptions& options, const mx::array& a, const mx::array& b, const DeviceTraits& device) {
  if (dtype_of(a) != options.kernel->in) {
    reject(options.op, options.kernel->name, " multiplies ", to_string(options.kernel->in), ", got ", a.dtype());
  }
  check_kernel(options.op, *options.kernel, device, a.shape(), b.shape());
}

mx::array gemm_op(const Chosen& chosen, const mx::Stream& stream, std::vector<mx::array> inputs) {
  mx::Shape shape = product_shape("matmul", inputs[0].shape(), inputs[1].shape());
  const mx::Dtype dtype = inputs[0].dtype();
  return mx::array(std::move(shape), dtype, std::make_shared<Gemm>(stream, chosen.kernel, chosen.named),
                   std::move(inputs));
}

}  // namespace

const KernelInfo* kernel_named(std::string_view op, const std::optional<std::string>& name) {
  if (!name) {
    return nullptr;
  }
  const KernelInfo* kernel = find_kernel(*name);
  if (kernel == nullptr) {
    std::string nearest;
    for (const std::string& candidate : nearest_kernels(*name)) {
      nearest += (nearest.empty() ? "" : ", ") + candidate;
    }
    constexpr size_t kLongest = 80;
    reject(op, "no kernel is called '", name->substr(0, kLongest), "'; the nearest names are ", nearest);
  }
  return kernel;
}

mx::array gemm(const mx::array& a, const mx::array& b, const GemmOptions& options, const mx::Stream& stream,
               const std::optional<mx::array>& bias) {
  product_shape(options.op, a.shape(), b.shape());
  const DeviceTraits device = device_traits(stream);
  const Dtype dtype = dtype_of(a);
  const KernelInfo* kernel = options.kernel;
  if (kernel != nullptr) {
    check_forced(options, a, b, device);
  } else {
    const Plan plan = choose(problem_of(a.shape(), b.shape(), dtype, {nullptr, device.backend}), device);
    if (plan.route == Route::mlx) {
      check_lowering(options.op, dtype, device);
      ++counters().lowered;
      if (bias && a.shape(-1) == 0) {
        return mx::add(mx::matmul(a, b, stream), *bias, stream);  // addmm of MLX 0.32.4 cannot reshape it
      }
      return bias ? mx::addmm(*bias, a, b, 1.0f, 1.0f, stream) : mx::matmul(a, b, stream);
    }
    kernel = plan.kernel;
  }
  const Chosen chosen{kernel, options.kernel != nullptr};
  if (device.backend == Backend::metal) {
    const mx::array product = gemm_op(chosen, stream, {a, b});
    return bias ? mx::add(product, *bias, stream) : product;
  }
  std::vector<mx::array> inputs{a, b};
  if (bias) {
    inputs.push_back(*bias);
  }
  return gemm_op(chosen, stream, std::move(inputs));
}

mx::array matmul(const mx::array& a, const mx::array& b, const std::optional<std::string>& kernel,
                 const mx::StreamOrDevice& stream) {
  const mx::Stream s = mx::to_stream(stream);
  const GemmOptions options{.kernel = kernel_named("matmul", kernel), .op = "matmul"};
  const Matrices operands = matrices(options.op, a, b, s);
  const mx::array product = gemm(operands.a, operands.b, options, s);
  std::vector<int> added;
  if (a.ndim() == 1) {
    added.push_back(-2);
  }
  if (b.ndim() == 1) {
    added.push_back(-1);
  }
  return added.empty() ? product : mx::squeeze(product, added, s);
}

mx::array linear(const mx::array& x, const mx::array& weight, const std::optional<mx::array>& bias,
                 const std::optional<std::string>& kernel, const mx::StreamOrDevice& stream) {
  const mx::Stream s = mx::to_stream(stream);
  const GemmOptions options{.kernel = kernel_named("linear", kernel), .op = "linear"};
  if (x.ndim() == 0 || weight.ndim() != 2 || x.shape(-1) != weight.shape(1)) {
    reject(options.op, "expected x[..., K] and weight[N, K], got x=", x.shape(), " weight=", weight.shape());
  }
  if (bias && bias->shape() != mx::Shape{weight.shape(0)}) {
    reject(options.op, "expected bias[N] with N=", weight.shape(0), ", got bias=", bias->shape());
  }
  const mx::Dtype type = promoted_type(options.op, x, weight, bias);
  const mx::array rows = x.ndim() == 1 ? mx::expand_dims(x, 0, s) : x;
  const mx::array columns = mx::transpose(mx::astype(weight, type, s), s);
  const auto typed_bias = bias ? std::optional(mx::astype(*bias, type, s)) : bias;
  const mx::array product = gemm(mx::astype(rows, type, s), columns, options, s, typed_bias);
  return x.ndim() == 1 ? mx::squeeze(product, -2, s) : product;
}

Explanation explain(const mx::array& a, const mx::array& b, const std::optional<std::string>& kernel,
                    const std::optional<mx::array>& bias, const mx::StreamOrDevice& stream) {
  const mx::Stream s = mx::to_stream(stream);
  const DeviceTraits device = device_traits(s);
  const GemmOptions options{.kernel = kernel_named("explain", kernel), .op = "explain"};
  Matrices operands = matrices(options.op, a, b, s);
  const mx::Shape shape = product_shape(options.op, operands.a.shape(), operands.b.shape());
  if (bias && bias->shape() != mx::Shape{shape.back()}) {
    reject(options.op, "expected bias[N] with N=", shape.back(), ", got bias=", bias->shape());
  }
  if (options.kernel != nullptr) {
    check_forced(options, operands.a, operands.b, device);
  }
  const Dtype dtype = dtype_of(operands.a);
  const Problem built = problem_of(operands.a.shape(), operands.b.shape(), dtype, {options.kernel, device.backend});
  const Plan plan = choose(built, device, options.kernel);

  mx::eval({operands.a, operands.b});
  const GemmView view = view_operands(operands.a, operands.b, {plan.kernel, device.backend});
  // The layout that the caller has, not that of the copies.
  const GemmView given = view_operands(operands.a, operands.b, {nullptr, device.backend});
  Explanation result{given.problem, plan};
  result.problem.dtype = dtype;
  result.plan.rejected = rejections(built, device, result.plan);
  if (result.plan.route != Route::mlx) {
    result.plan.copies = view.copy_a + view.copy_b;
  }
  return result;
}

std::string to_string(const Explanation& explanation) {
  const Plan& plan = explanation.plan;
  std::ostringstream text;
  text << describe(explanation.problem) << "\n";
  text << "runs " << (plan.kernel != nullptr ? plan.kernel->name : to_string(plan.route)) << ": " << plan.reason
       << "\n";
  text << "copies " << plan.copies << (plan.copies == 1 ? " operand" : " operands");
  for (const auto& [reason, candidates] : rejections_by_reason(plan)) {
    text << "\nnot " << candidates << ": " << reason;
  }
  return text.str();
}

}  // namespace mlx_gemm
