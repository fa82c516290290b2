#include "csrc/backends/launch_record.h"

#include <cstring>

#include "metal/shared/params.h"

namespace mlx_gemm {
namespace {

std::vector<std::byte> params_of(const Problem& problem) {
  const GemmParams params{
      .M = static_cast<int32_t>(problem.M),
      .N = static_cast<int32_t>(problem.N),
      .K = static_cast<int32_t>(problem.K),
      .lda = static_cast<int32_t>(problem.lda),
      .ldb = static_cast<int32_t>(problem.ldb),
      .ldc = static_cast<int32_t>(problem.N),
  };
  std::vector<std::byte> bytes(sizeof(params));
  std::memcpy(bytes.data(), &params, sizeof(params));
  return bytes;
}

}  // namespace

LaunchRecord plan_launch(const KernelInfo& kernel, const Problem& problem, const OperandOffsets& offsets) {
  const int64_t in = bytes_per_element(problem.dtype);
  const int64_t out = bytes_per_element(problem.out);
  LaunchRecord record;
  record.kernel = kernel.name;
  record.buffers = {
      {kBufferA, Operand::a, offsets.a * in, a_extent(problem) * in, false},
      {kBufferB, Operand::b, offsets.b * in, b_extent(problem) * in, false},
      {kBufferC, Operand::c, offsets.c * out, c_extent(problem) * out, true},
  };
  record.params_slot = kBufferParams;
  record.params = params_of(problem);
  const auto [columns, rows] = grid_of(kernel, problem);
  record.grid = {static_cast<uint32_t>(columns), static_cast<uint32_t>(rows), 1};
  record.threads = {static_cast<uint32_t>(kernel.threads[0]), static_cast<uint32_t>(kernel.threads[1]), 1};
  return record;
}

}  // namespace mlx_gemm
