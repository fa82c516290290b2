// Which kernel may run a problem, and which one does. Pure C++, testable on any machine.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/problem.h"
#include "csrc/registry.h"

namespace mlx_gemm {

// The only statement of legality: nothing when `kernel` can run `problem` on `device`, else the rule that it breaks.
std::optional<std::string> unsupported(const KernelInfo& kernel, const Problem& problem, const DeviceTraits& device);

enum class Route {
  kernel,  // a kernel of the registry
  blas,    // OpenBLAS on a CPU stream
  mlx,     // lowered to mx.matmul
};

struct Rejection {
  std::string candidate;
  std::string reason;
};

// What will run, and why. `copies` counts operands that must be copied before the kernel can address them.
struct Plan {
  Route route = Route::mlx;
  const KernelInfo* kernel = nullptr;
  std::string_view reason;
  std::string_view evidence = {};  // of a policy row
  std::vector<Rejection> rejected = {};
  int copies = 0;
};

// What the caller asked for: a kernel by name, which must be able to run the problem, or nullptr for the policy.
// Leaves `rejected` empty: this runs for every op, the list is for explanations.
Plan choose(const Problem& problem, const DeviceTraits& device, const KernelInfo* forced = nullptr);

// Threads per threadgroup that a GPU allows a kernel once it is compiled.
using ThreadLimit = std::function<int(const KernelInfo&)>;

// What runs a product whose kernel was chosen before it was compiled: that kernel where the GPU allows its threads.
// Else, unless the caller named it, the first of the policy's others and then of those with the fewest threads that
// takes the product and is allowed its own. Throws std::runtime_error when there is none.
struct Chosen {
  const KernelInfo* kernel;
  bool named;  // by the caller
};
const KernelInfo& kernel_within_limit(const Chosen& chosen, const Problem& problem, const DeviceTraits& device,
                                      const ThreadLimit& limit);

// The kernel for operands as they lie in memory: another than was chosen while the op was built where the policy has
// one for their layout. `named` ones stay.
const KernelInfo* kernel_for_layout(const Chosen& chosen, const Problem& problem, const DeviceTraits& device);

// Every candidate that the policy passed over for `plan`, and why.
std::vector<Rejection> rejections(const Problem& problem, const DeviceTraits& device, const Plan& plan);

// True where float32 at "highest" must not be lowered to mx.matmul because mx.matmul would multiply at TF32 there.
bool lowering_loses_precision(Dtype dtype, const DeviceTraits& device);

// The reason and, in parentheses, the evidence.
std::string why(const Plan& plan);

const char* to_string(Route route);

}  // namespace mlx_gemm
