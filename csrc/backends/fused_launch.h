// Launches of a production kernel: a batch at once, with the epilogue.
#pragma once

#include <vector>

#include "csrc/backends/launch_record.h"
#include "csrc/epilogue.h"
#include "csrc/layout.h"

namespace mlx_gemm {

struct FusedEpilogue {
  Epilogue epilogue;
  AddendView c;  // of Operand::addend
  AddendView residual;
};

// As few launches as the loop of the view allows: one, unless it has more than three dimensions that do not merge, or
// more products than a grid is deep. The view is that of operands in any layout the kernel takes.
std::vector<LaunchRecord> plan_fused_launches(const KernelInfo& kernel, const GemmView& view,
                                              const FusedEpilogue& epilogue);

}  // namespace mlx_gemm
