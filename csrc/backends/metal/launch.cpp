#include "csrc/backends/metal/launch.h"

#include "mlx/allocator.h"
#include "mlx/backend/metal/device.h"

namespace mlx_gemm {
namespace {

namespace mx = mlx::core;

MTL::ComputePipelineState* pipeline_of(const LaunchRecord& record, const mx::Stream& stream) {
  PipelineOptions<mx::CompileOptions, MTL::DataType> options{
      .compile = {}, .int_type = MTL::DataTypeInt, .bool_type = MTL::DataTypeBool};
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

int thread_limit(LaunchRecord record, const mx::Stream& stream) {
  record.threads = {};  // every pipeline allows one
  return static_cast<int>(pipeline_of(record, stream)->maxTotalThreadsPerThreadgroup());
}

void launch_on_gpu(const LaunchSequence& sequence, const ProductArrays<mx::array>& arrays, const mx::Stream& stream) {
  encode(
      sequence, arrays, [&](const LaunchRecord& record) { return pipeline_of(record, stream); },
      [&](const Scratch& scratch) { return scratch_like(scratch.operand == Operand::a_copy ? arrays.a : arrays.b); },
      mx::metal::get_command_encoder(stream));
}

}  // namespace mlx_gemm
