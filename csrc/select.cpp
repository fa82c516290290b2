#include "csrc/select.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "csrc/metal_policy.h"

namespace mlx_gemm {
namespace {

template <class... Parts>
std::string sentence(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

std::string version(int os) { return sentence(os / 100, ".", os % 100); }

std::optional<std::string> broken_by_device(const KernelInfo& kernel, const DeviceTraits& device) {
  switch (device.backend) {
    case Backend::cpu:
      return {};
    case Backend::cuda:
      return sentence(kernel.name, " is a Metal kernel: it runs on Apple GPUs and on a CPU, not on CUDA devices");
    case Backend::metal:
      break;
  }
  if (device.os < kernel.min_os) {
    return sentence(kernel.name, " needs macOS ", version(kernel.min_os), ", this is ", version(device.os));
  }
  if (device.generation < kernel.min_generation) {
    return sentence(kernel.name, " needs an Apple GPU of generation ", kernel.min_generation, ", got ",
                    device.architecture);
  }
  return {};
}

std::optional<std::string> broken_by_shape(const KernelInfo& kernel, const Problem& problem) {
  const struct {
    char name;
    int64_t length;
    int multiple;
  } dims[] = {{'M', problem.M, kernel.needs[0]}, {'N', problem.N, kernel.needs[1]}, {'K', problem.K, kernel.needs[2]}};
  for (const auto& dim : dims) {
    if (dim.length < 1) {
      return sentence(kernel.name, " needs ", dim.name, " to be at least 1, got ", dim.name, "=", dim.length);
    }
    if (dim.length % dim.multiple != 0) {
      return sentence(kernel.name, " needs ", dim.name, " to be a multiple of ", dim.multiple, ", got ", dim.name, "=",
                      dim.length);
    }
  }
  return {};
}

// A tensor over a tile counts its elements with 32 bits, and is addressed wrongly from 2 GiB on.
std::optional<std::string> broken_by_tile(const KernelInfo& kernel, const Problem& problem) {
  const int64_t depth = kernel.bk > 0 ? kernel.bk : problem.K;
  const struct {
    char name;
    int64_t rows;  // as they are stored
    int64_t ld;
    Dtype dtype;
  } tiles[] = {{'A', a_transposed(problem.layout) ? depth : kernel.bm, problem.lda, problem.dtype},
               {'B', b_transposed(problem.layout) ? kernel.bn : depth, problem.ldb, problem.dtype},
               {'C', kernel.bm, problem.N, problem.out}};
  for (const auto& tile : tiles) {
    const int64_t bytes = tile.rows * tile.ld * bytes_per_element(tile.dtype);
    if (bytes >= kMaxTileBytes) {
      return sentence(kernel.name, " takes tiles that span less than ", kMaxTileBytes, " bytes, one of ", tile.name,
                      " has ", tile.rows, " rows of ", tile.ld, " elements");
    }
  }
  return {};
}

std::optional<std::string> broken_by_size(const KernelInfo& kernel, const Problem& problem) {
  // Lengths first, so that the extents below cannot overflow. Kernels round a size up to a whole number of tiles.
  constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
  const struct {
    int64_t length;
    int64_t limit;
  } lengths[] = {{problem.M, kInt32Max - kernel.bm},
                 {problem.N, kInt32Max - kernel.bn},
                 {problem.K, kInt32Max - kernel.bk},
                 {problem.lda, kInt32Max},
                 {problem.ldb, kInt32Max}};
  for (const auto& [length, limit] : lengths) {
    if (length > limit) {
      return sentence(kernel.name, " takes sizes and leading dimensions that fit 32 bits with a tile to spare, got ",
                      length);
    }
  }
  if (kernel.fused()) {
    return kernel.tensorops() ? broken_by_tile(kernel, problem) : std::nullopt;
  }
  const struct {
    char name;
    int64_t extent;
  } operands[] = {{'A', a_extent(problem)}, {'B', b_extent(problem)}, {'C', c_extent(problem)}};
  for (const auto& operand : operands) {
    if (operand.extent > max_extent(kernel)) {
      return sentence(kernel.name, " takes matrices of at most ", max_extent(kernel), " elements, ", operand.name,
                      " spans ", operand.extent);
    }
  }
  return {};
}

std::optional<std::string> broken_by_grid(const KernelInfo& kernel, const Problem& problem) {
  constexpr int64_t kUint32Max = std::numeric_limits<uint32_t>::max();
  const auto grid = grid_of(kernel, problem);
  for (size_t axis = 0; axis < grid.size(); ++axis) {
    const int64_t threads = grid[axis] * kernel.threads[axis];
    if (threads > kUint32Max) {
      return sentence(kernel.name, " takes grids of at most ", kUint32Max, " threads along ", "xy"[axis], ", got ",
                      threads);
    }
  }
  return {};
}

constexpr const char* kOnlyByName = "runs only when it is named";

// Of the type alone: whoever builds an op on a CPU stream may leave out the sizes.
Plan choose_on_cpu(const Problem& problem, const DeviceTraits& device) {
  if (!device.blas) {
    return {.route = Route::mlx, .reason = "no BLAS is loaded"};
  }
  switch (problem.dtype) {
    case Dtype::float16:
      return {.route = Route::blas, .reason = "float16 on a CPU stream: OpenBLAS on parts widened to float32"};
    case Dtype::bfloat16:
      return {.route = Route::blas,
              .reason = "bfloat16 on a CPU stream: the CPU's own products, or OpenBLAS in float32"};
    case Dtype::float32:
      return {.route = Route::blas, .reason = "float32 on a CPU stream: OpenBLAS"};
    case Dtype::float64:
      return {.route = Route::blas, .reason = "float64 on a CPU stream: OpenBLAS"};
    case Dtype::complex64:
      return {.route = Route::blas, .reason = "complex64 on a CPU stream: OpenBLAS"};
  }
  return {};
}

Plan choose_on_metal(const Problem& problem, const DeviceTraits& device) {
  for (const PolicyRow& row : metal_policy()) {
    const KernelInfo* kernel = find_kernel(row.kernel);
    if (applies(row, problem, device) && !unsupported(*kernel, problem, device)) {
      return {.route = Route::kernel, .kernel = kernel, .reason = row.reason, .evidence = row.evidence};
    }
  }
  return {.route = Route::mlx, .reason = "no kernel is known to be faster here"};
}

std::optional<std::string> broken_by_limit(const KernelInfo& kernel, const ThreadLimit& limit) {
  const int allowed = limit(kernel);
  if (kernel.threadgroup_threads() <= allowed) {
    return {};
  }
  return sentence(kernel.name, " needs ", kernel.threadgroup_threads(), " threads per threadgroup, this GPU allows it ",
                  allowed);
}

// What may run instead of `kernel`, best first: what the policy names next, then those with the fewest threads.
std::vector<const KernelInfo*> stand_ins(const KernelInfo& kernel, const Problem& problem, const DeviceTraits& device) {
  const auto stands_in = [&](const KernelInfo& other) {
    return &other != &kernel && other.math == kernel.math && other.fused() >= kernel.fused() &&
           !unsupported(other, problem, device);
  };
  std::vector<const KernelInfo*> found;
  for (const PolicyRow& row : metal_policy()) {
    const KernelInfo* other = find_kernel(row.kernel);
    if (applies(row, problem, device) && stands_in(*other) && std::ranges::count(found, other) == 0) {
      found.push_back(other);
    }
  }
  const auto named = static_cast<std::ptrdiff_t>(found.size());
  for (const KernelInfo& other : kernels()) {
    if (stands_in(other) && std::ranges::count(found, &other) == 0) {
      found.push_back(&other);
    }
  }
  std::stable_sort(found.begin() + named, found.end(), [](const KernelInfo* a, const KernelInfo* b) {
    return a->threadgroup_threads() < b->threadgroup_threads();
  });
  return found;
}

}  // namespace

std::optional<std::string> unsupported(const KernelInfo& kernel, const Problem& problem, const DeviceTraits& device) {
  if (auto broken = broken_by_device(kernel, device)) {
    return broken;
  }
  if (!lists(kernel.dtypes, to_string(problem.dtype))) {
    return sentence(kernel.name, " multiplies ", kernel.dtypes, ", got ", to_string(problem.dtype));
  }
  if (problem.out != problem.dtype && problem.out != Dtype::float32) {
    return sentence(kernel.name, " returns the type of its operands or float32, asked for ", to_string(problem.out));
  }
  if (device.os < 2601 && device.backend == Backend::metal && kernel.tensorops() && problem.dtype == Dtype::bfloat16) {
    return sentence(kernel.name, " needs macOS 26.1 for bfloat16, this is ", version(device.os));
  }
  if (!lists(kernel.layouts, to_string(problem.layout))) {
    return sentence(kernel.name, " takes operands in layout ", kernel.layouts, ", got ", to_string(problem.layout));
  }
  if (auto broken = broken_by_shape(kernel, problem)) {
    return broken;
  }
  if (auto broken = broken_by_size(kernel, problem)) {
    return broken;
  }
  return broken_by_grid(kernel, problem);
}

Plan choose(const Problem& problem, const DeviceTraits& device, const KernelInfo* forced) {
  if (forced != nullptr) {
    return {.route = Route::kernel, .kernel = forced, .reason = "named by the caller"};
  }
  if (device.backend == Backend::cpu) {
    return choose_on_cpu(problem, device);
  }
  if (device.backend == Backend::metal) {
    return choose_on_metal(problem, device);
  }
  return {.route = Route::mlx, .reason = "no kernel is chosen by itself on CUDA devices yet"};
}

const KernelInfo& kernel_within_limit(const Chosen& chosen, const Problem& problem, const DeviceTraits& device,
                                      const ThreadLimit& limit) {
  const auto broken = broken_by_limit(*chosen.kernel, limit);
  if (!broken) {
    return *chosen.kernel;
  }
  if (!chosen.named) {
    for (const KernelInfo* other : stand_ins(*chosen.kernel, problem, device)) {
      if (!broken_by_limit(*other, limit)) {
        return *other;
      }
    }
  }
  throw std::runtime_error(sentence("[mlx_gemm.matmul] ", *broken, chosen.named ? "" : ", and no other kernel takes ",
                                    chosen.named ? "" : describe(problem)));
}

const KernelInfo* kernel_for_layout(const Chosen& chosen, const Problem& problem, const DeviceTraits& device) {
  const Plan plan = choose(problem, device);
  return chosen.named || plan.route != Route::kernel ? chosen.kernel : plan.kernel;
}

std::vector<Rejection> rejections(const Problem& problem, const DeviceTraits& device, const Plan& plan) {
  if (plan.route == Route::kernel) {
    return {};
  }
  std::vector<Rejection> rejected;
  if (device.backend == Backend::cpu && plan.route == Route::mlx) {
    rejected.push_back({"blas", why(plan)});
  }
  for (const KernelInfo& kernel : kernels()) {
    rejected.push_back({std::string(kernel.name), unsupported(kernel, problem, device).value_or(kOnlyByName)});
  }
  return rejected;
}

bool lowering_loses_precision(Dtype dtype, const DeviceTraits& device) {
  return dtype == Dtype::float32 && device.tf32;
}

std::string why(const Plan& plan) {
  return plan.evidence.empty() ? std::string(plan.reason) : sentence(plan.reason, " (", plan.evidence, ")");
}

const char* to_string(Route route) {
  switch (route) {
    case Route::kernel:
      return "kernel";
    case Route::blas:
      return "blas";
    case Route::mlx:
      return "mlx";
  }
  return "?";
}

}  // namespace mlx_gemm
