// A product on the thread of a CPU stream: by OpenBLAS, by our own panels of bfloat16, or by a named kernel on the
// Metal host runtime.
#pragma once

#include <optional>

#include "csrc/backends/cpu/epilogue.h"
#include "csrc/backends/fused_launch.h"
#include "csrc/layout.h"
#include "csrc/registry.h"

namespace mlx_gemm {

// An operand in memory: where it lies, and what of it is copied to where.
struct CpuOperand {
  const void* data;
  std::optional<Strided> copied;
  void* copy;

  const void* addressable(Dtype dtype) const;
};

// Everything by value: MLX keeps the memory alive, not the arrays.
struct CpuGemm {
  const KernelInfo* kernel;  // null: BLAS and panels
  GemmView view;             // the dtype is that of the operands
  CpuOperand a;
  CpuOperand b;
  CpuEpilogue epilogue;  // and D
  FusedEpilogue fused;   // of a production kernel, for the same arrays

  void run() const;

  // Wakes the helpers that run() will want, or one; for the thread that is about to queue it.
  void announce() const;
};

}  // namespace mlx_gemm
