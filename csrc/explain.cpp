#include "csrc/explain.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>

#include "csrc/backends/apple_gpu.h"
#include "csrc/backends/device_traits.h"
#include "csrc/check.h"
#include "mlx/transforms.h"

namespace mlx_gemm {
namespace {

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

Epilogue epilogue_of(const ExplainOperands& operands, Activation activation) {
  return {.has_c = operands.c || operands.bias, .activation = activation};
}

DeviceTraits device_asked_for(std::string_view op, const std::optional<std::string>& architecture,
                              const mx::Stream& stream) {
  if (!architecture) {
    return device_traits(stream);
  }
  const DeviceTraits device = apple_gpu_traits(
      {.architecture = *architecture, .os_version = "26.2", .tf32_setting = std::getenv("MLX_ENABLE_TF32")});
  if (device.generation == 0) {
    reject(op, "expected a device such as 'applegpu_g17g', got '", *architecture, "'");
  }
  return device;
}

}  // namespace

Explanation explain(const ExplainOperands& given, Activation activation, const ExplainRequest& request) {
  constexpr std::string_view kOp = "explain";
  const mx::Stream s = mx::to_stream(request.stream);
  const DeviceTraits device = device_asked_for(kOp, request.device, s);
  const GemmOptions options{.kernel = kernel_named(kOp, request.kernel), .op = kOp};
  const mx::Dtype type = promoted_type(kOp, std::array{given.a.dtype(), given.b.dtype()});
  check_out_dtype(kOp, type, request.out_dtype);
  const GemmOperands operands = matrices(kOp, given.a, given.b, type, s);
  const mx::array& a = operands.a;
  const mx::array& b = operands.b;
  const mx::Shape shape = product_shape(kOp, a.shape(), b.shape());
  if (given.bias && given.bias->shape() != mx::Shape{shape.back()}) {
    reject(kOp, "expected bias[N] with N=", shape.back(), ", got bias=", given.bias->shape());
  }
  if (given.c) {
    check_addend(kOp, "c", with_axes(*given.c, added_axes(given.a, given.b), s).shape(), shape);
  }
  const mx::Dtype out = request.out_dtype.value_or(type);
  const Epilogue epilogue = epilogue_of(given, activation);
  const ProductKind kind{dtype_of(type), dtype_of(out), epilogue.fuses()};
  const Problem built = problem_of(a.shape(), b.shape(), kind, {options.kernel, device.backend});
  if (options.kernel != nullptr) {
    check_named_kernel(options, built, device);
  }
  Plan plan = planned(built, device, options.kernel);

  mx::eval({a, b});
  // The layout that the caller has, not that of copies.
  const Problem problem = problem_of(a, b, kind, {nullptr, device.backend});
  if (device.backend == Backend::metal && plan.route == Route::kernel && options.kernel == nullptr) {
    const Plan laid_out = choose(problem, device);
    plan = laid_out.route == Route::kernel ? laid_out : plan;
  }
  const GemmView view = view_operands(a, b, {plan.kernel, device.backend});
  Explanation result{problem, epilogue, plan};
  result.plan.rejected = rejections(built, device, result.plan);
  if (result.plan.route != Route::mlx) {
    result.plan.copies = view.copies();
  }
  return result;
}

std::string to_string(const Explanation& explanation) {
  const Plan& plan = explanation.plan;
  std::ostringstream text;
  text << describe(explanation.problem) << "\n";
  text << "runs " << (plan.kernel != nullptr ? plan.kernel->name : to_string(plan.route)) << ": " << why(plan) << "\n";
  text << "copies " << plan.copies << (plan.copies == 1 ? " operand" : " operands");
  for (const auto& [reason, candidates] : rejections_by_reason(plan)) {
    text << "\nnot " << candidates << ": " << reason;
  }
  return text.str();
}

}  // namespace mlx_gemm
