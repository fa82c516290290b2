#include "csrc/backends/fused_launch.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <span>

#include "metal/shared/params.h"

namespace mlx_gemm {
namespace {

constexpr int64_t kMaxDepth = 65535;  // threadgroups along z

// Arrays that a launch steps through.
enum Stepped { kA, kB, kAddend, kResidual };
using Steps = std::array<int64_t, 4>;

struct BatchDim {
  int64_t length;
  Steps steps;
};

int64_t products_of(std::span<const BatchDim> dims) {
  int64_t count = 1;
  for (const BatchDim& dim : dims) {
    count *= dim.length;
  }
  return count;
}

Steps stepped(const Steps& start, const BatchDim& dim, int64_t index) {
  Steps result = start;
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] += index * dim.steps[i];
  }
  return result;
}

// Dimensions of one product left out, and neighbours merged where one step covers both in every array.
std::vector<BatchDim> merged_dims(const GemmView& view, const FusedEpilogue& epilogue) {
  const auto step = [](const std::vector<int64_t>& steps, size_t dim) { return steps.empty() ? 0 : steps[dim]; };
  std::vector<BatchDim> dims;
  for (size_t i = 0; i < view.loop.size(); ++i) {
    const BatchDim dim{view.loop[i],
                       {view.a_steps[i], view.b_steps[i], step(epilogue.c.steps, i), step(epilogue.residual.steps, i)}};
    if (dim.length == 1) {
      continue;
    }
    const auto merges = [&](const BatchDim& outer) {
      for (size_t j = 0; j < dim.steps.size(); ++j) {
        if (outer.steps[j] != dim.length * dim.steps[j]) {
          return false;
        }
      }
      return true;
    };
    if (!dims.empty() && merges(dims.back())) {
      dims.back() = {dims.back().length * dim.length, dim.steps};
    } else {
      dims.push_back(dim);
    }
  }
  return dims;
}

class Planner {
 public:
  Planner(const KernelInfo& kernel, const GemmView& view, const FusedEpilogue& epilogue)
      : kernel_(kernel), problem_(view.problem), epilogue_(epilogue) {}

  // Products of `dims`, of which the first starts at `start` and has this index in the batch.
  void plan(std::span<const BatchDim> dims, const Steps& start, int64_t index) {
    if (dims.size() <= kBatchDims && products_of(dims) <= kMaxDepth) {
      launches_.push_back(launch(dims, start, index));
      return;
    }
    const BatchDim& outer = dims.front();
    const auto inner = dims.subspan(1);
    const int64_t inner_products = products_of(inner);
    const bool sliced = dims.size() <= kBatchDims && inner_products <= kMaxDepth;
    const int64_t slice = sliced ? kMaxDepth / inner_products : 1;
    for (int64_t i = 0; i < outer.length; i += slice) {
      if (sliced) {
        std::vector<BatchDim> part(dims.begin(), dims.end());
        part.front().length = std::min(slice, outer.length - i);
        launches_.push_back(launch(part, stepped(start, outer, i), index + i * inner_products));
      } else {
        plan(inner, stepped(start, outer, i), index + i * inner_products);
      }
    }
  }

  std::vector<LaunchRecord> take() { return std::move(launches_); }

 private:
  LaunchRecord launch(std::span<const BatchDim> dims, const Steps& start, int64_t index) const {
    LaunchRecord record;
    record.kernel = function_name(kernel_, problem_.dtype, problem_.out);
    record.constants = {
        {kConstantTransposeA, a_transposed(problem_.layout), true},
        {kConstantTransposeB, b_transposed(problem_.layout), true},
        {kConstantHasC, epilogue_.epilogue.has_c, true},
        {kConstantHasResidual, epilogue_.epilogue.has_residual, true},
    };
    FusedGemmParams params = params_of(dims);
    params.a_origin = bind(record, kBufferA, Operand::a, reach_of(dims, kA), start[kA]);
    params.b_origin = bind(record, kBufferB, Operand::b, reach_of(dims, kB), start[kB]);
    const int64_t c = c_extent(problem_);
    bind(record, kBufferC, Operand::c, {.after = products_of(dims) * c - 1}, index * c);
    if (epilogue_.epilogue.has_c) {
      params.c.origin = bind(record, kBufferAddend, Operand::addend, reach_of(dims, kAddend), start[kAddend]);
    }
    if (epilogue_.epilogue.has_residual) {
      params.residual.origin =
          bind(record, kBufferResidual, Operand::residual, reach_of(dims, kResidual), start[kResidual]);
    }
    record.params_slot = kBufferParams;
    record.params.resize(sizeof(params));
    std::memcpy(record.params.data(), &params, sizeof(params));
    const auto [columns, rows] = grid_of(kernel_, problem_);
    record.grid = {static_cast<uint32_t>(columns), static_cast<uint32_t>(rows),
                   static_cast<uint32_t>(products_of(dims))};
    record.threads = {static_cast<uint32_t>(kernel_.threads[0]), static_cast<uint32_t>(kernel_.threads[1]), 1};
    return record;
  }

  // Where an array lies in memory around its first element: strides may be negative.
  struct Reach {
    int64_t before = 0;
    int64_t after = 0;

    void add(int64_t length, int64_t stride) { (stride < 0 ? before : after) += (length - 1) * std::abs(stride); }
  };

  Reach reach_of(std::span<const BatchDim> dims, Stepped array) const {
    Reach reach;
    for (const BatchDim& dim : dims) {
      reach.add(dim.length, dim.steps[array]);
    }
    switch (array) {
      case kA:
        reach.after += a_extent(problem_) - 1;
        break;
      case kB:
        reach.after += b_extent(problem_) - 1;
        break;
      case kAddend:
      case kResidual: {
        const AddendView& addend = array == kAddend ? epilogue_.c : epilogue_.residual;
        reach.add(problem_.M, addend.row_stride);
        reach.add(problem_.N, addend.column_stride);
      }
    }
    return reach;
  }

  // Binds an array from its lowest element on, and returns the position of its first.
  int64_t bind(LaunchRecord& record, GemmBuffer slot, Operand operand, const Reach& reach, int64_t start) const {
    const int64_t bytes =
        bytes_per_element(operand == Operand::a || operand == Operand::b ? problem_.dtype : problem_.out);
    const int64_t length = reach.before + 1 + reach.after;
    record.buffers.push_back({slot, operand, (start - reach.before) * bytes, length * bytes, operand == Operand::c});
    return reach.before;
  }

  FusedGemmParams params_of(std::span<const BatchDim> dims) const {
    FusedGemmParams params{};
    const size_t unused = kBatchDims - dims.size();
    for (size_t i = 0; i < kBatchDims; ++i) {
      const BatchDim dim = i < unused ? BatchDim{1, {}} : dims[i - unused];
      params.batch_shape[i] = static_cast<int32_t>(dim.length);
      params.a_batch_strides[i] = dim.steps[kA];
      params.b_batch_strides[i] = dim.steps[kB];
      params.c.batch_strides[i] = dim.steps[kAddend];
      params.residual.batch_strides[i] = dim.steps[kResidual];
    }
    params.c.row_stride = epilogue_.c.row_stride;
    params.c.column_stride = epilogue_.c.column_stride;
    params.residual.row_stride = epilogue_.residual.row_stride;
    params.residual.column_stride = epilogue_.residual.column_stride;
    params.M = static_cast<int32_t>(problem_.M);
    params.N = static_cast<int32_t>(problem_.N);
    params.K = static_cast<int32_t>(problem_.K);
    params.lda = static_cast<int32_t>(problem_.lda);
    params.ldb = static_cast<int32_t>(problem_.ldb);
    params.order = static_cast<int32_t>(kernel_.order);
    params.activation = static_cast<int32_t>(epilogue_.epilogue.activation);
    params.alpha = epilogue_.epilogue.alpha;
    params.beta = epilogue_.epilogue.beta;
    return params;
  }

  const KernelInfo& kernel_;
  const Problem& problem_;
  const FusedEpilogue& epilogue_;
  std::vector<LaunchRecord> launches_;
};

static_assert(static_cast<int>(Activation::relu) == kActivationRelu);
static_assert(static_cast<int>(Activation::gelu) == kActivationGelu);
static_assert(static_cast<int>(Activation::gelu_tanh) == kActivationGeluTanh);
static_assert(static_cast<int>(Activation::silu) == kActivationSilu);

}  // namespace

std::vector<LaunchRecord> plan_fused_launches(const KernelInfo& kernel, const GemmView& view,
                                              const FusedEpilogue& epilogue) {
  Planner planner(kernel, view, epilogue);
  const std::vector<BatchDim> dims = merged_dims(view, epilogue);
  planner.plan(dims, {}, 0);
  return planner.take();
}

}  // namespace mlx_gemm
