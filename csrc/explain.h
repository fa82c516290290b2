// What a call would run, and why.
#pragma once

#include <optional>
#include <string>

#include "csrc/ops.h"

namespace mlx_gemm {

// Of operands as they lie in memory.
struct Explanation {
  Problem problem;
  Epilogue epilogue;
  Plan plan;
};

struct ExplainOperands {
  mx::array a;
  mx::array b;
  std::optional<mx::array> c;
  std::optional<mx::array> bias;
};

struct ExplainRequest : Request {
  std::optional<std::string> device;  // architecture of an Apple GPU on macOS 26.2, at hand or not; else the stream's
};

// Evaluates the operands.
Explanation explain(const ExplainOperands& operands, Activation activation, const ExplainRequest& request);

std::string to_string(const Explanation& explanation);

}  // namespace mlx_gemm
