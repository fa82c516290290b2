#include "csrc/metal_policy.h"

#include <algorithm>

#include "csrc/registry.h"

namespace mlx_gemm {
namespace {

constexpr std::string_view kFloat = "float32";
constexpr std::string_view kHalf = "float16,bfloat16";
constexpr std::string_view kReal = "float32,float16,bfloat16";

constexpr std::string_view kSpeed = "true float32 on the matrix units, reported 1.1 times MLX's";
constexpr std::string_view kExact = "true float32, where mx.matmul multiplies at TF32 precision";
constexpr std::string_view kOnePass = "one pass for the product and its epilogue, where MLX takes several";

// No number here is ours. The author of the synchronised kernels reports 3736 GFLOP/s for k256 and 3716 for k128 at
// M = N = K = 4096 on an M5 with 10 GPU cores, MLX's float32 kernels 3380.
constexpr std::string_view kReported = "reported by the author of the synchronised kernels, M5, 4096^3";
constexpr std::string_view kFewRows = "tile that others report best for a few rows on an M5 Pro";
constexpr std::string_view kSmall = "tile that others report best up to 256 on an M5 Pro";
constexpr std::string_view kMiddle = "tile of others' tables for less than 64 rows on an M5";
constexpr std::string_view kGeneral = "the general form of the reported kernel";
constexpr std::string_view kMlxTile = "tile of MLX's own kernel for this class of GPU";

// The first row that applies, and whose kernel supports the problem, decides. Every Apple GPU runs SIMD-group kernels
// on any problem: the last row of each need is legal wherever one of ours is.
constexpr PolicyRow kRows[] = {
    // TensorOps, where they run on the neural accelerators.
    {.kernel = "tensorops_sync_64x64_k256",
     .need = Need::speed,
     .dtypes = kFloat,
     .first_generation = 17,
     .reason = kSpeed,
     .evidence = kReported},
    {.kernel = "tensorops_sync_64x64_k128",
     .need = Need::speed,
     .dtypes = kFloat,
     .first_generation = 17,
     .reason = kSpeed,
     .evidence = kReported},
    {.kernel = "tensorops_gemm_16x128_k256",
     .need = Need::exact,
     .dtypes = kFloat,
     .first_generation = 17,
     .max_M = 16,
     .reason = kExact,
     .evidence = kFewRows},
    {.kernel = "tensorops_gemm_32x64_k256",
     .need = Need::exact,
     .dtypes = kFloat,
     .first_generation = 17,
     .max_M = 63,
     .reason = kExact,
     .evidence = kMiddle},
    {.kernel = "tensorops_gemm_32x32_k256",
     .need = Need::exact,
     .dtypes = kFloat,
     .first_generation = 17,
     .max_M = 256,
     .max_N = 256,
     .reason = kExact,
     .evidence = kSmall},
    {.kernel = "tensorops_gemm_64x64_k256",
     .need = Need::exact,
     .dtypes = kFloat,
     .first_generation = 17,
     .reason = kExact,
     .evidence = kGeneral},
    {.kernel = "tensorops_gemm_16x128_k256",
     .need = Need::one_pass,
     .dtypes = kReal,
     .first_generation = 17,
     .max_M = 16,
     .reason = kOnePass,
     .evidence = kFewRows},
    {.kernel = "tensorops_gemm_32x64_k256",
     .need = Need::one_pass,
     .dtypes = kReal,
     .first_generation = 17,
     .max_M = 63,
     .reason = kOnePass,
     .evidence = kMiddle},
    {.kernel = "tensorops_gemm_32x32_k256",
     .need = Need::one_pass,
     .dtypes = kReal,
     .first_generation = 17,
     .max_M = 256,
     .max_N = 256,
     .reason = kOnePass,
     .evidence = kSmall},
    {.kernel = "tensorops_gemm_64x64_k256",
     .need = Need::one_pass,
     .dtypes = kReal,
     .first_generation = 17,
     .reason = kOnePass,
     .evidence = kGeneral},

    // SIMD-group matrices: base chips and phones (g, p), Ultra (d), Pro and Max (s, c).
    {.kernel = "simd_gemm_64x32_k32",
     .need = Need::one_pass,
     .dtypes = kReal,
     .classes = "gp",
     .layouts = "nt",
     .reason = kOnePass,
     .evidence = kMlxTile},
    {.kernel = "simd_gemm_64x64_k16_1x2",
     .need = Need::one_pass,
     .dtypes = kHalf,
     .classes = "gp",
     .reason = kOnePass,
     .evidence = kMlxTile},
    {.kernel = "simd_gemm_32x64_k16_1x2",
     .need = Need::one_pass,
     .dtypes = kFloat,
     .classes = "d",
     .layouts = "nt",
     .max_M = 1024,
     .max_N = 1024,
     .reason = kOnePass,
     .evidence = kMlxTile},
    {.kernel = "simd_gemm_64x64_k16_1x2",
     .need = Need::one_pass,
     .dtypes = kHalf,
     .classes = "d",
     .reason = kOnePass,
     .evidence = kMlxTile},
    {.kernel = "simd_gemm_64x64_k16",
     .need = Need::one_pass,
     .dtypes = kReal,
     .reason = kOnePass,
     .evidence = kMlxTile},
    {.kernel = "simd_gemm_64x64_k16", .need = Need::exact, .dtypes = kFloat, .reason = kExact, .evidence = kMlxTile},
};

bool is_needed(Need need, const Problem& problem, const DeviceTraits& device) {
  const bool one_pass = problem.fuses || problem.out != problem.dtype;
  switch (need) {
    case Need::speed:
      return !one_pass && problem.batch == 1;
    case Need::exact:
      return device.tf32;
    case Need::one_pass:
      return one_pass;
  }
  return false;
}

constexpr bool names_a_kernel(const PolicyRow& row) {
  // find_kernel() is not a constant expression; check_select looks every name up.
  return !row.kernel.empty() && !row.reason.empty() && !row.evidence.empty();
}
static_assert(std::ranges::all_of(kRows, names_a_kernel), "every row has a kernel, a reason and evidence");

}  // namespace

std::span<const PolicyRow> metal_policy() { return kRows; }

bool applies(const PolicyRow& row, const Problem& problem, const DeviceTraits& device) {
  const bool in_class = row.classes.empty() || (!device.architecture.empty() &&
                                                row.classes.find(device.architecture.back()) != std::string_view::npos);
  return is_needed(row.need, problem, device) && lists(row.dtypes, to_string(problem.dtype)) && in_class &&
         (row.layouts.empty() || lists(row.layouts, to_string(problem.layout))) &&
         device.generation >= row.first_generation && problem.M <= row.max_M && problem.N <= row.max_N;
}

}  // namespace mlx_gemm
