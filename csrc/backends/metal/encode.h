// Plays a launch on a compute encoder. Written against what it uses of MLX's CommandEncoder, so that a recording
// encoder can stand in for it in tests.
#pragma once

#include "csrc/backends/launch_record.h"

namespace mlx_gemm {

// The arrays behind the operands of a record.
template <class Array>
struct LaunchArrays {
  const Array& a;
  const Array& b;
  Array& c;
};

template <class Encoder, class Array, class Pipeline>
void encode(const LaunchRecord& record, const LaunchArrays<Array>& arrays, Pipeline* pipeline, Encoder& encoder) {
  encoder.set_compute_pipeline_state(pipeline);
  for (const BufferBinding& binding : record.buffers) {
    // Offsets count from the array's first element; the encoder adds where that lies in its buffer.
    switch (binding.operand) {
      case Operand::a:
        encoder.set_input_array(arrays.a, binding.slot, binding.byte_offset);
        break;
      case Operand::b:
        encoder.set_input_array(arrays.b, binding.slot, binding.byte_offset);
        break;
      case Operand::c:
        encoder.set_output_array(arrays.c, binding.slot, binding.byte_offset);
        break;
    }
  }
  encoder.set_bytes(record.params.data(), static_cast<int>(record.params.size()), record.params_slot);
  encoder.dispatch_threadgroups({record.grid.x, record.grid.y, record.grid.z},
                                {record.threads.x, record.threads.y, record.threads.z});
}

}  // namespace mlx_gemm
