#include "csrc/gemm.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "csrc/backends/cpu/cpu_gemm.h"
#include "csrc/backends/cpu/huge_pages.h"
#include "csrc/backends/cpu/pending_products.h"
#include "csrc/backends/device_traits.h"
#include "csrc/backends/metal/launch.h"
#include "csrc/check.h"
#include "csrc/counters.h"
#include "csrc/select.h"
#include "csrc/thread_pool.h"
#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"

namespace mlx_gemm {
namespace {

bool broadcasts(const mx::Shape& a, const mx::Shape& b) {
  return std::equal(a.rbegin() + 2, a.rbegin() + std::min(a.size(), b.size()), b.rbegin() + 2,
                    [](int x, int y) { return x == y || x == 1 || y == 1; });
}

// Strides of `addend` once it is broadcast to `shape`.
std::vector<int64_t> broadcast_strides(const mx::array& addend, const mx::Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 0);
  const size_t missing = shape.size() - addend.ndim();
  for (size_t dim = missing; dim < shape.size(); ++dim) {
    const int own = static_cast<int>(dim - missing);
    strides[dim] = addend.shape(own) == 1 ? 0 : addend.strides(own);
  }
  return strides;
}

Addressing addressing_for(const Executor& executor, const mx::array& a) {
  const KernelInfo* kernel = executor.kernel;
  Addressing addressing =
      kernel == nullptr ? kBlasAddressing : addressing_of(*kernel, dtype_of(a.dtype()), a.shape(-1));
  addressing.join_rows = executor.joins_rows();
  // The rules of a kernel of the ladder apply to all rows.
  addressing.copy_to_join = executor.backend == Backend::metal && (kernel == nullptr || !kernel->fused());
  return addressing;
}

// The operands and addends of a production kernel.
struct FusedView {
  GemmView view;
  FusedEpilogue epilogue;
};

FusedView view_fused(const std::vector<mx::array>& inputs, const mx::Shape& shape, const Executor& executor,
                     const Epilogue& epilogue) {
  const auto addend = [&](size_t input, const GemmView& view) {
    return view_addend({{shape.begin(), shape.end()}, broadcast_strides(inputs[input], shape)}, view);
  };
  Addressing addressing = addressing_for(executor, inputs[0]);
  const size_t residual = epilogue.has_c ? 3 : 2;
  // No stride of an addend may cover rows that were joined; each matrix for itself has one.
  for (const bool join : {addressing.join_rows, false}) {
    addressing.join_rows = join;
    const GemmView view = view_gemm(layout_of(inputs[0]), layout_of(inputs[1]), addressing);
    const auto c_view = epilogue.has_c ? addend(2, view) : AddendView{};
    const auto residual_view = epilogue.has_residual ? addend(residual, view) : AddendView{};
    if (c_view && residual_view) {
      return {view, {epilogue, *c_view, *residual_view}};
    }
  }
  throw std::runtime_error(error_text("matmul", "an addend without a row stride"));
}

// Memory for a result where a cache line starts, so that no vector is stored across two. MLX's CPU allocator has no
// such alignment.
void allocate_result(mx::array& out) {
  constexpr uintptr_t kLine = 64;
  auto memory = mx::allocator::malloc(out.nbytes() + kLine);
  const auto beyond = reinterpret_cast<uintptr_t>(memory.buffer().raw_ptr()) % kLine;
  const auto offset_bytes = static_cast<int64_t>((kLine - beyond) % kLine);
  const bool one_axis = out.size() <= 1 || static_cast<size_t>(std::ranges::max(out.shape())) == out.size();
  const mx::array::Flags flags{.contiguous = true, .row_contiguous = true, .col_contiguous = one_axis};
  out.set_data(std::move(memory), out.size(), out.strides(), flags, offset_bytes);
}

Problem of_kind(Problem problem, const ProductKind& kind) {
  problem.dtype = kind.dtype;
  problem.out = kind.out;
  problem.fuses = kind.fuses;
  return problem;
}

}  // namespace

Dtype dtype_of(const mx::Dtype& type) {
  switch (type.val()) {
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

mx::Shape product_shape(std::string_view op, const mx::Shape& a, const mx::Shape& b) {
  if (a.end()[-1] != b.end()[-2]) {
    reject(op, "expected a.shape[-1] == b.shape[-2], got a=", a, " b=", b);
  }
  if (!broadcasts(a, b)) {
    reject(op, "expected batch dimensions that broadcast, got a=", a, " b=", b);
  }
  mx::Shape shape = mx::broadcast_shapes(mx::Shape(a.begin(), a.end() - 2), mx::Shape(b.begin(), b.end() - 2));
  shape.push_back(a.end()[-2]);
  shape.push_back(b.end()[-1]);
  return shape;
}

Problem problem_of(const mx::Shape& a, const mx::Shape& b, const ProductKind& kind, const Executor& executor) {
  // Copies are row-contiguous and always addressable; what they may not exceed is for unsupported() to say.
  const Addressing addressing{.join_rows = executor.joins_rows()};
  return of_kind(view_gemm(row_contiguous(a), row_contiguous(b), addressing).problem, kind);
}

Problem problem_of(const mx::array& a, const mx::array& b, const ProductKind& kind, const Executor& executor) {
  return of_kind(view_operands(a, b, executor).problem, kind);
}

void check_kernel(std::string_view op, const KernelInfo& kernel, const DeviceTraits& device, const Problem& problem) {
  const bool empty = problem.M == 0 || problem.N == 0 || problem.K == 0 || problem.batch == 0;
  if (empty) {
    return;  // never reaches a kernel
  }
  if (const auto broken = unsupported(kernel, problem, device)) {
    reject(op, *broken, ", for ", describe(problem));
  }
}

void check_addend(std::string_view op, std::string_view name, const mx::Shape& addend, const mx::Shape& product) {
  const bool fits = addend.size() <= product.size() && std::equal(addend.rbegin(), addend.rend(), product.rbegin(),
                                                                  [](int x, int y) { return x == y || x == 1; });
  if (!fits) {
    reject(op, "expected ", name, " that broadcasts to the product's shape ", product, ", got ", name, "=", addend);
  }
}

GemmView view_operands(const mx::array& a, const mx::array& b, const Executor& executor) {
  return view_gemm(layout_of(a), layout_of(b), addressing_for(executor, a));
}

void Gemm::eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) {
  ++counters().gemm_evals;
  allocate_result(out);
  if (out.size() == 0) {
    return;
  }
  ask_for_huge_pages(out.data<void>(), static_cast<int64_t>(out.nbytes()));
  auto& encoder = mx::cpu::get_command_encoder(stream());
  const auto operand = [&](const mx::array& input, const std::optional<Strided>& copied) {
    encoder.set_input_array(input);
    CpuOperand result{input.data<void>(), copied, nullptr};
    if (copied) {
      mx::array copy({copied->shape.begin(), copied->shape.end()}, input.dtype(), nullptr, {});
      copy.set_data(mx::allocator::malloc(copy.nbytes()));
      result.copy = copy.data<void>();
      encoder.add_temporary(std::move(copy));
    }
    return result;
  };

  const Executor executor{kernel_, Backend::cpu};
  FusedView fused;
  if (kernel_ != nullptr && kernel_->fused()) {
    fused = view_fused(inputs, out.shape(), executor, epilogue_);
  } else {
    fused.view = view_operands(inputs[0], inputs[1], executor);
  }
  GemmView& view = fused.view;
  view.problem = of_kind(view.problem, kind(inputs));
  auto addend = inputs.begin() + 2;
  const auto next_addend = [&](bool present) {
    if (!present) {
      return CpuAddend{};
    }
    encoder.set_input_array(*addend);
    const CpuAddend result{addend->data<void>(), dtype_of(addend->dtype()), broadcast_strides(*addend, out.shape())};
    ++addend;
    return result;
  };
  // Shared: MLX's queue copies what it is given more than once.
  auto gemm = std::make_shared<const CpuGemm>(CpuGemm{
      .kernel = kernel_,
      .view = view,
      .a = operand(inputs[0], view.copied_a),
      .b = operand(inputs[1], view.copied_b),
      .epilogue = {.epilogue = epilogue_,
                   .shape = {out.shape().begin(), out.shape().end()},
                   .dtype = dtype_of(out.dtype()),
                   .d = out.data<void>(),
                   .c = next_addend(epilogue_.has_c),
                   .residual = next_addend(epilogue_.has_residual)},
      .fused = fused.epilogue,
  });
  encoder.set_output_array(out);
  // First: Linux then runs MLX's thread on this CPU, whose own thread is about to wait, and not beside the helpers.
  gemm->announce();
  add_pending_product();
  encoder.dispatch([gemm] {
    struct Removal {
      ~Removal() { remove_pending_product(); }
    } removal;
    gemm->run();
    // To the thread that queued this: what it queues next finds this one awake, where both share a CPU.
    give_way();
  });
}

void Gemm::eval_gpu(const std::vector<mx::array>& inputs, mx::array& out) {
  ++counters().gemm_evals;
  const mx::array& a = inputs[0];
  const mx::array& b = inputs[1];
  out.set_data(mx::allocator::malloc(out.nbytes()));
  if (out.size() == 0) {
    return;
  }
  if (a.shape(-1) == 0) {
    // Ops are built without a kernel where K is 0; a trace that is kept for other shapes may still come here.
    if (!epilogue_.is_identity()) {
      throw std::runtime_error(error_text("matmul", "a compiled function with K=0 and an epilogue on a GPU"));
    }
    // Fresh memory that no command has seen yet, and that the CPU shares.
    std::memset(out.data<void>(), 0, out.nbytes());
    return;
  }
  const DeviceTraits device = device_traits(stream());
  const auto plan_with = [&](const KernelInfo& kernel) {
    const Executor executor{&kernel, Backend::metal};
    FusedView fused = kernel.fused() ? view_fused(inputs, out.shape(), executor, epilogue_)
                                     : FusedView{view_operands(a, b, executor), {}};
    fused.view.problem = of_kind(fused.view.problem, kind(inputs));
    return plan_products(kernel, fused.view, fused.epilogue);
  };
  const Problem problem = problem_of(a, b, kind(inputs), {nullptr, Backend::metal});
  const Chosen chosen{kernel_for_layout({kernel_, named_}, problem, device), named_};
  const Problem built = problem_of(a.shape(), b.shape(), kind(inputs), {chosen.kernel, Backend::metal});
  const KernelInfo& kernel = kernel_within_limit(chosen, built, device, [&](const KernelInfo& candidate) {
    return thread_limit(plan_with(candidate).products.front(), stream());
  });
  const LaunchSequence sequence = plan_with(kernel);
  counters().copies += static_cast<int64_t>(sequence.scratch.size());
  const mx::array* addend = epilogue_.has_c ? &inputs[2] : nullptr;
  const mx::array* residual = epilogue_.has_residual ? &inputs.back() : nullptr;
  launch_on_gpu(sequence, {a, b, out, addend, residual}, stream());
}

ProductKind Gemm::kind(const std::vector<mx::array>& inputs) const {
  return {dtype_of(inputs[0].dtype()), dtype_of(out_dtype_), epilogue_.fuses()};
}

bool Gemm::is_equivalent(const Primitive& other) const {
  const auto& gemm = static_cast<const Gemm&>(other);
  return kernel_ == gemm.kernel_ && named_ == gemm.named_ && epilogue_ == gemm.epilogue_ &&
         out_dtype_ == gemm.out_dtype_;
}

std::vector<mx::Shape> Gemm::output_shapes(const std::vector<mx::array>& inputs) {
  // A function compiled with shapeless=True comes here with shapes that the op never saw.
  const mx::Shape& a = inputs[0].shape();
  const mx::Shape& b = inputs[1].shape();
  mx::Shape shape = product_shape("matmul", a, b);
  for (size_t i = 2; i < inputs.size(); ++i) {
    check_addend("matmul", i == 2 && epilogue_.has_c ? "c" : "residual", inputs[i].shape(), shape);
  }
  if (kernel_ != nullptr) {
    const DeviceTraits device = device_traits(stream());
    check_kernel("matmul", *kernel_, device, problem_of(a, b, kind(inputs), {kernel_, device.backend}));
  }
  return {shape};
}

}  // namespace mlx_gemm
