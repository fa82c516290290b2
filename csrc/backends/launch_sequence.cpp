#include "csrc/backends/launch_sequence.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <string_view>

namespace mlx_gemm {
namespace {

// A launch counts rows with 32 bits.
constexpr int64_t kRowsPerLaunch = int64_t(1) << 31;

struct Axis {
  int64_t length;
  int64_t stride;
};

// Axes of one element left out, and neighbours merged where one stride covers both; at least one is left.
std::vector<Axis> merged_axes(const Strided& layout) {
  std::vector<Axis> axes;
  for (size_t dim = 0; dim < layout.shape.size(); ++dim) {
    const Axis axis{layout.shape[dim], layout.strides[dim]};
    if (axis.length == 1) {
      continue;
    }
    const bool merges = !axes.empty() && axes.back().stride == axis.length * axis.stride &&
                        axes.back().length * axis.length < kRowsPerLaunch;
    if (merges) {
      axes.back() = {axes.back().length * axis.length, axis.stride};
    } else {
      axes.push_back(axis);
    }
  }
  return axes.empty() ? std::vector<Axis>{{1, 0}} : axes;
}

int64_t elements(std::span<const Axis> axes) {
  return std::accumulate(axes.begin(), axes.end(), int64_t(1),
                         [](int64_t n, const Axis& axis) { return n * axis.length; });
}

// Copies with the outer axes counted by the host.
class CopyPlanner {
 public:
  CopyPlanner(const CopyRequest& request, std::vector<LaunchRecord>& launches)
      : request_(request), kernel_(kernel_of(request)), launches_(launches) {}

  // `from` and `to` are offsets of the first element.
  void copy(std::span<const Axis> axes, int64_t from, int64_t to) {
    if (axes.size() > kMaxCopyRowAxes + 1) {
      const auto inner = axes.subspan(1);
      for (int64_t i = 0; i < axes.front().length; ++i) {
        copy(inner, from + i * axes.front().stride, to + i * elements(inner));
      }
      return;
    }
    CopyParams params{};
    params.columns = axes.back().length;
    params.column_stride = axes.back().stride;
    params.rows = elements(axes) / params.columns;
    const auto rows = axes.first(axes.size() - 1);
    for (size_t axis = 0; axis < rows.size(); ++axis) {
      params.row_lengths[axis] = rows[axis].length;
      params.row_strides[axis] = rows[axis].stride;
    }
    int64_t lowest = 0;  // offset of the first element in memory, and of the last
    int64_t highest = 0;
    for (const Axis& axis : axes) {
      (axis.stride < 0 ? lowest : highest) += (axis.length - 1) * axis.stride;
    }
    params.origin = -lowest;
    const int64_t bytes = request_.bytes_per_element;
    const std::vector<BufferBinding> buffers{
        {kCopyFrom, request_.from, (from + lowest) * bytes, (highest - lowest + 1) * bytes, false},
        {kCopyTo, request_.to, to * bytes, elements(axes) * bytes, true},
    };
    for (; params.first_row < params.rows; params.first_row += kRowsPerLaunch) {
      launches_.push_back(launch(params, buffers, static_cast<int32_t>(rows.size())));
    }
  }

 private:
  static std::string_view kernel_of(const CopyRequest& request) {
    switch (request.bytes_per_element) {
      case 2:
        return "strided_copy_16";
      case 4:
        return "strided_copy_32";
      default:
        return "strided_copy_64";
    }
  }

  LaunchRecord launch(const CopyParams& params, const std::vector<BufferBinding>& buffers, int32_t axes) const {
    const int64_t rows = std::min(params.rows - params.first_row, kRowsPerLaunch);
    LaunchRecord record;
    record.kernel = kernel_;
    record.constants = {{kCopyRowAxes, axes}};
    record.buffers = buffers;
    record.params_slot = kCopyParams;
    record.params.resize(sizeof(params));
    std::memcpy(record.params.data(), &params, sizeof(params));
    record.grid = {static_cast<uint32_t>(tiles(params.columns, kCopyThreadsX)),
                   static_cast<uint32_t>(tiles(rows, kCopyThreadsY)), 1};
    record.threads = {kCopyThreadsX, kCopyThreadsY, 1};
    return record;
  }

  CopyRequest request_;
  std::string_view kernel_;
  std::vector<LaunchRecord>& launches_;
};

}  // namespace

void append_copies(const CopyRequest& request, const Strided& layout, std::vector<LaunchRecord>& launches) {
  CopyPlanner(request, launches).copy(merged_axes(layout), 0, 0);
}

LaunchSequence plan_products(const KernelInfo& kernel, const GemmView& view, const FusedEpilogue& epilogue) {
  LaunchSequence sequence;
  const int64_t bytes = bytes_per_element(view.problem.dtype);
  const auto copy = [&](Operand from, Operand to, const std::optional<Strided>& layout) {
    if (layout) {
      sequence.scratch.push_back(
          {to, bytes * std::accumulate(layout->shape.begin(), layout->shape.end(), int64_t(1), std::multiplies<>())});
      append_copies({from, to, static_cast<int>(bytes)}, *layout, sequence.copies);
    }
  };
  copy(Operand::a, Operand::a_copy, view.copied_a);
  copy(Operand::b, Operand::b_copy, view.copied_b);
  if (kernel.fused()) {
    sequence.products = plan_fused_launches(kernel, view, epilogue);
  } else {
    for (int64_t i = 0; i < view.problem.batch; ++i) {
      sequence.products.push_back(plan_launch(kernel, view.problem, offsets_of_product(view, i)));
    }
  }
  for (LaunchRecord& record : sequence.products) {
    for (BufferBinding& binding : record.buffers) {
      if (binding.operand == Operand::a && view.copied_a) {
        binding.operand = Operand::a_copy;
      } else if (binding.operand == Operand::b && view.copied_b) {
        binding.operand = Operand::b_copy;
      }
    }
  }
  return sequence;
}

}  // namespace mlx_gemm
