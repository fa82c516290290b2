#include "csrc/backends/cpu/cpu_gemm.h"

#include <algorithm>
#include <cstring>

#include "csrc/backends/cpu/bfloat_panel_gemm.h"
#include "csrc/backends/cpu/blas.h"
#include "csrc/backends/cpu/block_gemm.h"
#include "csrc/backends/cpu/float_panel_gemm.h"
#include "csrc/backends/cpu/host_play.h"
#include "csrc/backends/cpu/line_gemm.h"
#include "csrc/backends/cpu/strided_copy.h"
#include "csrc/backends/cpu/workspace.h"
#include "csrc/thread_pool.h"

namespace mlx_gemm {
namespace {

int64_t rows_of(const std::vector<int>& shape) {
  int64_t rows = 1;
  for (size_t dim = 0; dim + 1 < shape.size(); ++dim) {
    rows *= shape[dim];
  }
  return rows;
}

// Nothing to sum.
void store_zeros(const CpuEpilogue& epilogue) {
  const int64_t rows = rows_of(epilogue.shape);
  const int64_t columns = epilogue.shape.back();
  std::memset(epilogue.d, 0, static_cast<size_t>(rows * columns * bytes_per_element(epilogue.dtype)));
  if (epilogue.epilogue.is_identity()) {
    return;
  }
  float* zeros = float_workspace(Workspace::sums, columns);
  for (int64_t row = 0; row < rows; ++row) {
    std::fill_n(zeros, columns, 0.0f);
    epilogue.finish({row, 1, 0, columns}, zeros, columns, 1.0f);
  }
}

void run_kernel(const CpuGemm& gemm, const void* a, const void* b) {
  const CpuEpilogue& epilogue = gemm.epilogue;
  const Problem& problem = gemm.view.problem;
  const HostOperands operands{
      .a = a, .b = b, .c = epilogue.d, .addend = epilogue.c.data, .residual = epilogue.residual.data};
  try {
    if (gemm.kernel->fused()) {
      for (const LaunchRecord& record : plan_fused_launches(*gemm.kernel, gemm.view, gemm.fused)) {
        play(record, operands);
      }
      return;
    }
    for (int64_t i = 0; i < problem.batch; ++i) {
      play(plan_launch(*gemm.kernel, problem, offsets_of_product(gemm.view, i)), operands);
    }
  } catch (...) {
    // Nobody must take a half-written product for a result. All bits set are a NaN of every type.
    std::memset(epilogue.d, 0xff,
                static_cast<size_t>(problem.batch * c_extent(problem) * bytes_per_element(problem.out)));
    throw;
  }
  if (!epilogue.epilogue.is_identity()) {
    const int64_t rows = problem.batch * problem.M;
    epilogue.finish({0, rows, 0, problem.N}, static_cast<float*>(epilogue.d), problem.N, epilogue.epilogue.alpha);
  }
}

}  // namespace

const void* CpuOperand::addressable(Dtype dtype) const {
  if (!copied) {
    return data;
  }
  copy_row_contiguous({data, bytes_per_element(dtype)}, *copied, copy);
  return copy;
}

void CpuGemm::run() const {
  const Problem& problem = view.problem;
  if (problem.K == 0 || epilogue.epilogue.alpha == 0.0f) {
    store_zeros(epilogue);
    return;
  }
  const void* a_data = a.addressable(problem.dtype);
  const void* b_data = b.addressable(problem.dtype);
  if (kernel != nullptr) {
    run_kernel(*this, a_data, b_data);
  } else if (suits_bfloat_panels(problem)) {
    multiply_bfloat_panels({view, a_data, b_data, epilogue});
  } else if (suits_lines(problem)) {
    multiply_lines({view, a_data, b_data, epilogue});
  } else if (suits_float_panels(problem)) {
    multiply_float_panels({view, a_data, b_data, epilogue});
  } else {
    multiply_blocks({view, a_data, b_data, epilogue});
  }
}

void CpuGemm::announce() const {
  if (kernel == nullptr) {
    // One helper even where none has work: it keeps MLX's thread on the CPU of the one that waits for it.
    announce_loop(std::max(threads_for(view.problem), 2));
  }
}

}  // namespace mlx_gemm
