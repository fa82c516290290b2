// All launches of one op: copies of the operands that its kernel cannot address, then its products.
#pragma once

#include <vector>

#include "csrc/backends/fused_launch.h"
#include "csrc/backends/launch_record.h"

namespace mlx_gemm {

// An array that the launches need besides operands and result.
struct Scratch {
  Operand operand;
  int64_t bytes;
};

struct LaunchSequence {
  std::vector<Scratch> scratch;
  std::vector<LaunchRecord> copies;    // depend on none of the others
  std::vector<LaunchRecord> products;  // depend on the copies
};

// `view` is that of what the kernel can address. Only production kernels have an epilogue.
LaunchSequence plan_products(const KernelInfo& kernel, const GemmView& view, const FusedEpilogue& epilogue = {});

// Appends the launches that copy `from`, which has this layout, to `to`, row-contiguous. No axis is empty.
struct CopyRequest {
  Operand from;
  Operand to;
  int bytes_per_element;
};
void append_copies(const CopyRequest& request, const Strided& layout, std::vector<LaunchRecord>& launches);

}  // namespace mlx_gemm
