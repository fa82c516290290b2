// A kernel launch as plain data: built by portable C++, played by the Metal encoder or by the Metal host runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/layout.h"
#include "csrc/registry.h"

namespace mlx_gemm {

// The arrays of a GEMM that a buffer binding can refer to: operands, the result, row-contiguous copies of operands, and
// what is added to the result.
enum class Operand { a, b, c, a_copy, b_copy, addend, residual };
constexpr size_t kOperands = 7;

struct BufferBinding {
  int slot;
  Operand operand;
  int64_t byte_offset;  // of the first element, from the start of the operand's allocation
  int64_t byte_size;    // that the kernel may touch from there on
  bool writable;
};

// An `int` or `bool` of the kernel's source that is known when its pipeline is made.
struct FunctionConstant {
  int id;
  int32_t value;
  bool boolean = false;
};

struct Extent3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

struct LaunchRecord {
  std::string kernel;  // name of the Metal function
  std::vector<FunctionConstant> constants;
  std::vector<BufferBinding> buffers;
  int params_slot = 0;
  std::vector<std::byte> params;
  Extent3 grid;     // threadgroups
  Extent3 threads;  // threads per threadgroup
};

// The launch of one matrix product. The problem's layout must be one of the kernel's.
LaunchRecord plan_launch(const KernelInfo& kernel, const Problem& problem, const OperandOffsets& offsets = {});

}  // namespace mlx_gemm
