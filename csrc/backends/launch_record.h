// A kernel launch as plain data: built by portable C++, played by the Metal encoder or by the Metal host runtime.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/problem.h"
#include "csrc/registry.h"

namespace mlx_gemm {

// The arrays of a GEMM that a buffer binding can refer to.
enum class Operand { a, b, c };

struct BufferBinding {
  int slot;
  Operand operand;
  int64_t byte_offset;  // of the first element, from the start of the operand's allocation
  int64_t byte_size;    // that the kernel may touch from there on
  bool writable;
};

struct FunctionConstant {
  int id;
  int64_t value;
};

struct Extent3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

struct LaunchRecord {
  const KernelInfo* kernel = nullptr;
  std::vector<FunctionConstant> constants;
  std::vector<BufferBinding> buffers;
  int params_slot = 0;
  std::vector<std::byte> params;
  Extent3 grid;     // threadgroups
  Extent3 threads;  // threads per threadgroup
  int64_t scratch_bytes = 0;
};

// Offsets of the first element of each operand, in elements.
struct OperandOffsets {
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
};

// The launch of one matrix product. The problem's layout must be one of the kernel's.
LaunchRecord plan_launch(const KernelInfo& kernel, const Problem& problem, const OperandOffsets& offsets = {});

}  // namespace mlx_gemm
