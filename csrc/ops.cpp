#include "csrc/ops.h"

#include <array>
#include <functional>

#include "csrc/backends/device_traits.h"
#include "csrc/check.h"
#include "csrc/counters.h"
#include "csrc/disabled.h"
#include "mlx/ops.h"

namespace mlx_gemm {
namespace {

void check_lowering(std::string_view op, Dtype dtype, const DeviceTraits& device) {
  if (lowering_loses_precision(dtype, device)) {
    reject(op, "float32 must not lose precision, and on ", to_string(device.backend), " device ", device.architecture,
           " mx.matmul multiplies float32 at TF32 precision: set MLX_ENABLE_TF32=0 before the process starts");
  }
}

void check_activation(std::string_view op, Activation activation, const mx::Dtype& type) {
  if (activation != Activation::none && type == mx::complex64) {
    reject(op, "expected real operands for the activation ", to_string(activation), ", got ", type);
  }
}

mx::array without_axes(mx::array x, const std::vector<int>& axes, const mx::Stream& s) {
  return axes.empty() ? std::move(x) : mx::squeeze(x, axes, s);
}

mx::array lowered(const GemmOperands& operands, const Epilogue& epilogue, const mx::Stream& s) {
  const auto& [a, b, addends] = operands;
  ++counters().lowered;
  if (epilogue.alpha == 0.0f) {
    // Of the product only the shape counts, whatever it holds; a compiled function may meet another.
    const mx::array zero(0.0f, a.dtype());
    const mx::array zeros = mx::where(mx::array(false), mx::matmul(a, b, s), zero, s);
    Epilogue rest = epilogue;
    rest.alpha = 1.0f;
    return apply_epilogue(zeros, addends, rest, s);
  }
  // MLX 0.32.4's addmm is wrong for empty operands, its jvp ignores alpha and beta, its vmap a c mapped alone.
  const auto fits = [](const mx::array& x) { return x.size() > 0 && !x.is_tracer(); };
  const bool fits_addmm = addends.c && a.dtype() != mx::complex64 && fits(a) && fits(b) && fits(*addends.c);
  if (!fits_addmm) {
    return apply_epilogue(mx::matmul(a, b, s), addends, epilogue, s);
  }
  const mx::array sum = mx::addmm(*addends.c, a, b, epilogue.alpha, epilogue.beta, s);
  return apply_epilogue(sum, {.residual = addends.residual}, {.activation = epilogue.activation}, s);
}

GemmOperands as_type(const GemmOperands& operands, const mx::Dtype& type, const mx::Stream& s) {
  const auto typed = [&](const std::optional<mx::array>& x) { return x ? std::optional(mx::astype(*x, type, s)) : x; };
  return {mx::astype(operands.a, type, s),
          mx::astype(operands.b, type, s),
          {typed(operands.addends.c), typed(operands.addends.residual)}};
}

mx::array gemm_op(const Chosen& chosen, const GemmOperands& operands, const GemmOptions& options, const mx::Stream& s) {
  std::vector<mx::array> inputs{operands.a, operands.b};
  for (const auto& addend : {operands.addends.c, operands.addends.residual}) {
    if (addend) {
      inputs.push_back(*addend);
    }
  }
  mx::Shape shape = product_shape("matmul", operands.a.shape(), operands.b.shape());
  const mx::Dtype out_dtype = options.out_dtype.value_or(operands.a.dtype());
  return mx::array(std::move(shape), out_dtype, std::make_shared<Gemm>(s, chosen, options.epilogue, out_dtype),
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

mx::Dtype promoted_type(std::string_view op, std::span<const mx::Dtype> operands) {
  mx::Dtype type = mx::bool_;
  for (const mx::Dtype& operand : operands) {
    type = mx::promote_types(type, operand);
  }
  if (!mx::issubdtype(type, mx::inexact)) {
    std::ostringstream types;
    for (const mx::Dtype& operand : operands) {
      types << (&operand == &operands.front() ? "" : ", ") << operand;
    }
    reject(op, "expected operands that promote to a floating-point or complex type, got ", types.str());
  }
  return type;
}

GemmOperands matrices(std::string_view op, const mx::array& a, const mx::array& b, const mx::Dtype& type,
                      const mx::Stream& s) {
  if (a.ndim() == 0 || b.ndim() == 0) {
    reject(op, "expected operands with at least one dimension, got a=", a.shape(), " b=", b.shape());
  }
  const auto matrix = [&](const mx::array& x, int new_axis) {
    const mx::array typed = mx::astype(x, type, s);
    return x.ndim() == 1 ? mx::expand_dims(typed, new_axis, s) : typed;
  };
  return {matrix(a, 0), matrix(b, 1)};
}

mx::Dtype wide(const mx::Dtype& type) { return type == mx::float16 || type == mx::bfloat16 ? mx::float32 : type; }

void check_out_dtype(std::string_view op, const mx::Dtype& promoted, const std::optional<mx::Dtype>& asked) {
  if (asked && *asked != promoted && *asked != wide(promoted)) {
    reject(op, "expected out_dtype ", promoted, wide(promoted) != promoted ? " or float32" : "",
           " for operands that promote to ", promoted, ", got ", *asked);
  }
}

std::vector<int> added_axes(const mx::array& a, const mx::array& b) {
  std::vector<int> axes;
  if (a.ndim() == 1) {
    axes.push_back(-2);
  }
  if (b.ndim() == 1) {
    axes.push_back(-1);
  }
  return axes;
}

mx::array with_axes(mx::array x, const std::vector<int>& axes, const mx::Stream& s) {
  if (x.ndim() == 0) {
    return x;
  }
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    x = mx::expand_dims(x, *axis, s);
  }
  return x;
}

Plan planned(const Problem& problem, const DeviceTraits& device, const KernelInfo* named) {
  if (is_disabled()) {
    return {.route = Route::mlx, .reason = "mlx_gemm.disabled() is in force"};
  }
  return choose(problem, device, named);
}

void check_named_kernel(const GemmOptions& options, const Problem& problem, const DeviceTraits& device) {
  if (is_disabled()) {
    reject(options.op, "kernel ", options.kernel->name, " is named, and mlx_gemm.disabled() is in force");
  }
  check_kernel(options.op, *options.kernel, device, problem);
}

mx::array gemm(const GemmOperands& operands, GemmOptions options, const mx::Stream& stream) {
  const auto& [a, b, addends] = operands;
  const mx::Shape shape = product_shape(options.op, a.shape(), b.shape());
  Epilogue& epilogue = options.epilogue;
  epilogue.has_c = addends.c.has_value();
  epilogue.has_residual = addends.residual.has_value();
  if (addends.c) {
    check_addend(options.op, "c", addends.c->shape(), shape);
  }
  if (addends.residual) {
    check_addend(options.op, "residual", addends.residual->shape(), shape);
  }
  const DeviceTraits device = device_traits(stream);
  const mx::Dtype out_dtype = options.out_dtype.value_or(a.dtype());
  const bool widens = out_dtype != a.dtype();
  const bool ladder = options.kernel != nullptr && !options.kernel->fused();
  if (widens && ladder) {
    return gemm(as_type(operands, out_dtype, stream), options, stream);
  }
  const ProductKind kind{dtype_of(a.dtype()), dtype_of(out_dtype), epilogue.fuses()};
  // On a CPU the policy asks for the type alone, and small products must not wait for more.
  const bool by_type = device.backend == Backend::cpu && options.kernel == nullptr;
  const Problem problem =
      by_type ? Problem{.dtype = kind.dtype} : problem_of(a.shape(), b.shape(), kind, {options.kernel, device.backend});
  if (options.kernel != nullptr) {
    check_named_kernel(options, problem, device);
  }
  if (epilogue.has_c && epilogue.beta == 0.0f) {
    return gemm({a, b, {.residual = addends.residual}}, options, stream);
  }
  const Plan plan = planned(problem, device, options.kernel);
  const bool composed =
      device.backend == Backend::metal || kind.dtype == Dtype::float64 || kind.dtype == Dtype::complex64;
  const bool no_product = a.shape(-1) == 0 || epilogue.alpha == 0.0f;  // for no kernel of a GPU
  if (plan.route == Route::mlx || (no_product && composed)) {
    if (widens) {
      return gemm(as_type(operands, out_dtype, stream), options, stream);
    }
    check_lowering(options.op, kind.dtype, device);
    return lowered(operands, epilogue, stream);
  }
  const Chosen chosen{plan.kernel, options.kernel != nullptr};
  if (plan.kernel != nullptr && plan.kernel->fused()) {
    return gemm_op(chosen, {a, b, as_type(operands, out_dtype, stream).addends}, options, stream);
  }
  if (composed) {
    return apply_epilogue(gemm_op(chosen, {a, b}, {}, stream), addends, epilogue, stream);
  }
  return gemm_op(chosen, operands, options, stream);
}

mx::array matmul(const mx::array& a, const mx::array& b, const Request& request) {
  const mx::Stream s = mx::to_stream(request.stream);
  const GemmOptions options{
      .kernel = kernel_named("matmul", request.kernel), .op = "matmul", .out_dtype = request.out_dtype};
  const mx::Dtype type = promoted_type(options.op, std::array{a.dtype(), b.dtype()});
  check_out_dtype(options.op, type, request.out_dtype);
  return without_axes(gemm(matrices(options.op, a, b, type, s), options, s), added_axes(a, b), s);
}

mx::array addmm(const mx::array& c, const mx::array& a, const mx::array& b, const AddmmFactors& factors,
                Activation activation, const Request& request) {
  const mx::Stream s = mx::to_stream(request.stream);
  const GemmOptions options{
      .kernel = kernel_named("addmm", request.kernel),
      .op = "addmm",
      .epilogue = {.alpha = factors.alpha, .beta = factors.beta, .activation = activation},
      .out_dtype = request.out_dtype,
  };
  const mx::Dtype type = promoted_type(options.op, std::array{a.dtype(), b.dtype(), c.dtype()});
  check_out_dtype(options.op, type, request.out_dtype);
  check_activation(options.op, activation, type);
  GemmOperands operands = matrices(options.op, a, b, type, s);
  operands.addends.c = with_axes(mx::astype(c, type, s), added_axes(a, b), s);
  return without_axes(gemm(operands, options, s), added_axes(a, b), s);
}

mx::array linear(const LinearOperands& operands, Activation activation, const Request& request) {
  const mx::Stream s = mx::to_stream(request.stream);
  const auto& [x, weight, bias, residual] = operands;
  const GemmOptions options{
      .kernel = kernel_named("linear", request.kernel),
      .op = "linear",
      .epilogue = {.activation = activation},
      .out_dtype = request.out_dtype,
  };
  if (x.ndim() == 0 || weight.ndim() != 2 || x.shape(-1) != weight.shape(1)) {
    reject(options.op, "expected x[..., K] and weight[N, K], got x=", x.shape(), " weight=", weight.shape());
  }
  if (bias && bias->shape() != mx::Shape{weight.shape(0)}) {
    reject(options.op, "expected bias[N] with N=", weight.shape(0), ", got bias=", bias->shape());
  }
  std::vector<mx::Dtype> types{x.dtype(), weight.dtype()};
  for (const auto& addend : {std::cref(bias), std::cref(residual)}) {
    if (addend.get()) {
      types.push_back(addend.get()->dtype());
    }
  }
  const mx::Dtype type = promoted_type(options.op, types);
  check_out_dtype(options.op, type, request.out_dtype);
  check_activation(options.op, activation, type);
  const mx::array columns = mx::transpose(mx::astype(weight, type, s), s);
  GemmOperands product = matrices(options.op, x, columns, type, s);
  if (bias) {
    product.addends.c = mx::astype(*bias, type, s);
  }
  if (residual) {
    product.addends.residual = with_axes(mx::astype(*residual, type, s), added_axes(x, columns), s);
  }
  return without_axes(gemm(product, options, s), added_axes(x, columns), s);
}

}  // namespace mlx_gemm
