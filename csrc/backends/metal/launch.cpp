#include "csrc/backends/metal/launch.h"

#include <optional>

#include "csrc/backends/metal/encode.h"
#include "mlx/allocator.h"
#include "mlx/backend/metal/device.h"

namespace mlx_gemm {
namespace {

namespace mx = mlx::core;

MTL::ComputePipelineState* pipeline_of(const LaunchRecord& record, const mx::Stream& stream) {
  PipelineOptions<mx::CompileOptions, MTL::DataType> options{.compile = {}, .int_type = MTL::DataTypeInt, .bool_type = MTL::DataTypeBool};
  options.compile.math_mode = mx::MathMode::Safe;  // fast math would let the compiler reorder sums
  return make_pipeline(record, mx::metal::device(stream.device), options);
}

// Row-contiguous, of the shape and type of `operand`.
mx::array scratch_like(const mx::array& operand) {
  mx::array copy(operand.shape(), operand.dtype(), nullptr, {});
  copy.set_data(mx::allocator::malloc(copy.nbytes()));
  return copy;
}

}  // namespace

int thread_limit(const KernelInfo& kernel, const mx::Stream& stream) {
  LaunchRecord record;  // of one thread, which every pipeline allows
  record.kernel = kernel.name;
  return static_cast<int>(pipeline_of(record, stream)->maxTotalThreadsPerThreadgroup());
}

void launch_on_gpu(const LaunchSequence& sequence, const ProductArrays& given, const mx::Stream& stream) {
  mx::metal::CommandEncoder& encoder = mx::metal::get_command_encoder(stream);
  mx::array a = given.a;
  mx::array b = given.b;
  std::optional<mx::array> a_copy;
  std::optional<mx::array> b_copy;
  for (const Scratch& scratch : sequence.scratch) {
    const bool of_a = scratch.operand == Operand::a_copy;
    auto& copy = of_a ? a_copy : b_copy;
    copy = scratch_like(of_a ? a : b);
    encoder.add_temporary(*copy);
  }
  const LaunchArrays<mx::array> arrays{&a, &b, &given.c, a_copy ? &*a_copy : nullptr, b_copy ? &*b_copy : nullptr};
  encode(sequence, arrays, [&](const LaunchRecord& record) { return pipeline_of(record, stream); }, encoder);
}

}  // namespace mlx_gemm
