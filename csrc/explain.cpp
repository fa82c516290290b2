#include "csrc/explain.h"

#include <algorithm>
#include <sstream>

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

}  // namespace

Explanation explain(const ExplainOperands& given, Activation activation, const Request& request) {
  constexpr std::string_view kOp = "explain";
  const mx::Stream s = mx::to_stream(request.stream);
  const DeviceTraits device = device_traits(s);
  const GemmOptions options{.kernel = kernel_named(kOp, request.kernel), .op = kOp};
  const mx::Dtype type = promoted_type(kOp, {given.a, given.b});
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
  if (options.kernel != nullptr) {
    check_named_kernel(options, a, b, device);
  }
  const Dtype dtype = dtype_of(a.dtype());
  const Problem built = problem_of(a.shape(), b.shape(), dtype, {options.kernel, device.backend});
  const Plan plan = planned(built, device, options.kernel);

  mx::eval({a, b});
  const GemmView view = view_operands(a, b, {plan.kernel, device.backend});
  // The layout that the caller has, not that of the copies.
  const Problem problem = view_operands(a, b, {nullptr, device.backend}).problem;
  Explanation result{problem, epilogue_of(given, activation), plan};
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
