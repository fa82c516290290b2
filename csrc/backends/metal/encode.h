// Plays launches on a Metal device and its compute encoder. Written against what it uses of MLX's Device and
// CommandEncoder, so that recording ones can stand in for them in tests.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/backends/launch_sequence.h"
#include "csrc/backends/metal/kernel_sources.h"

namespace mlx_gemm {

template <class Array>
struct ProductArrays {
  const Array& a;
  const Array& b;
  Array& c;
  const Array* addend = nullptr;
  const Array* residual = nullptr;
};

// By Operand. Inputs are handles to arrays too: what a launch may write is for its bindings to say.
template <class Array>
using LaunchArrays = std::array<Array*, kOperands>;

// What a library is compiled with, and the device's names for the types of function constants.
template <class CompileOptions, class DataType>
struct PipelineOptions {
  CompileOptions compile;
  DataType int_type;
  DataType bool_type;
};

// One library per kernel, which holds nothing else, and one pipeline per set of function constants; the device keeps
// both. Throws std::runtime_error with the compiler's log, or when the GPU allows the kernel fewer threads than the
// launch has.
template <class Device, class CompileOptions, class DataType>
auto* make_pipeline(const LaunchRecord& record, Device& device,
                    const PipelineOptions<CompileOptions, DataType>& options) {
  const std::string& name = record.kernel;
  std::string specialised = name;
  std::vector<std::tuple<const void*, DataType, unsigned long>> constants;
  for (const FunctionConstant& constant : record.constants) {
    specialised += "_" + std::to_string(constant.id) + "=" + std::to_string(constant.value);
    // On a little-endian machine the first byte of an int is the bool.
    constants.emplace_back(&constant.value, constant.boolean ? options.bool_type : options.int_type, constant.id);
  }
  const auto compiled = [&] {
    try {
      auto* library = device.get_library("mlx_gemm_" + name, options.compile, [&] { return kernel_source(name); });
      return device.get_kernel(name, library, specialised, constants);
    } catch (const std::exception& error) {
      throw std::runtime_error("[mlx_gemm] kernel " + name + " does not compile here: " + error.what());
    }
  };
  auto* pipeline = compiled();
  const uint64_t threads = uint64_t(record.threads.x) * record.threads.y * record.threads.z;
  if (pipeline->maxTotalThreadsPerThreadgroup() < threads) {
    throw std::runtime_error("[mlx_gemm] kernel " + name + " needs " + std::to_string(threads) +
                             " threads per threadgroup, this GPU allows it " +
                             std::to_string(pipeline->maxTotalThreadsPerThreadgroup()));
  }
  return pipeline;
}

template <class Encoder, class Array, class Pipeline>
void encode(const LaunchRecord& record, const LaunchArrays<Array>& arrays, Pipeline* pipeline, Encoder& encoder) {
  encoder.set_compute_pipeline_state(pipeline);
  for (const BufferBinding& binding : record.buffers) {
    // Offsets count from the array's first element; the encoder adds where that lies in its buffer.
    Array& array = *arrays[static_cast<size_t>(binding.operand)];
    if (binding.writable) {
      encoder.set_output_array(array, binding.slot, binding.byte_offset);
    } else {
      encoder.set_input_array(array, binding.slot, binding.byte_offset);
    }
  }
  encoder.set_bytes(record.params.data(), static_cast<int>(record.params.size()), record.params_slot);
  encoder.dispatch_threadgroups({record.grid.x, record.grid.y, record.grid.z},
                                {record.threads.x, record.threads.y, record.threads.z});
}

// `allocate` makes the array of a Scratch, which the encoder keeps for as long as the GPU needs it.
template <class Encoder, class Array, class PipelineOf, class Allocate>
void encode(const LaunchSequence& sequence, const ProductArrays<Array>& arrays, const PipelineOf& pipeline_of,
            const Allocate& allocate, Encoder& encoder) {
  std::vector<Array> handles;
  handles.reserve(kOperands);
  LaunchArrays<Array> all{};
  const auto hold = [&](Operand operand, const Array& array) {
    all[static_cast<size_t>(operand)] = &handles.emplace_back(array);
  };
  hold(Operand::a, arrays.a);
  hold(Operand::b, arrays.b);
  all[static_cast<size_t>(Operand::c)] = &arrays.c;
  if (arrays.addend != nullptr) {
    hold(Operand::addend, *arrays.addend);
  }
  if (arrays.residual != nullptr) {
    hold(Operand::residual, *arrays.residual);
  }
  for (const Scratch& scratch : sequence.scratch) {
    hold(scratch.operand, allocate(scratch));
    encoder.add_temporary(handles.back());
  }
  for (const auto* launches : {&sequence.copies, &sequence.products}) {
    // They write to different parts of the same arrays: outside of this each would wait for the one before.
    const auto concurrent = encoder.start_concurrent();
    for (const LaunchRecord& record : *launches) {
      encode(record, all, pipeline_of(record), encoder);
    }
  }
}

}  // namespace mlx_gemm
