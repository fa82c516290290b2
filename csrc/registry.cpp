#include "csrc/registry.h"

#include <algorithm>
#include <limits>

namespace mlx_gemm {
namespace {

constexpr KernelInfo with_default_threads(KernelInfo kernel) {
  if (kernel.threads[0] == 0) {
    kernel.threads = {kernel.threadgroup_threads(), 1};
  }
  return kernel;
}

constexpr KernelInfo kKernels[] = {
#define GEMM_KERNEL(BODY, NAME, BM, BN, BK, WM, WN, ORDER, ...) \
  with_default_threads({.name = #NAME,                          \
                        .body = #BODY,                          \
                        .bm = BM,                               \
                        .bn = BN,                               \
                        .bk = BK,                               \
                        .wm = WM,                               \
                        .wn = WN,                               \
                        .order = TileOrder::ORDER,              \
                        __VA_ARGS__}),
#include "metal/shared/gemm_kernels.def"
};

// ---- Rules that every row keeps ----

constexpr bool every_kernel(bool (*rule)(const KernelInfo&)) { return std::ranges::all_of(kKernels, rule); }

constexpr bool name_is_unique(const KernelInfo& kernel) {
  return std::ranges::count(kKernels, kernel.name, &KernelInfo::name) == 1;
}

// Bodies without edge handling: a problem must be made of whole tiles.
constexpr bool needs_whole_tiles(const KernelInfo& kernel) {
  return kernel.family() == "simdgroup" || kernel.body == "tensorops_sync";
}

static_assert(every_kernel(name_is_unique), "kernel names are unique");
static_assert(every_kernel([](const KernelInfo& k) { return k.bm > 0 && k.bn > 0 && k.bk >= 0 && k.simdgroups() > 0; }),
              "tiles and SIMD-group grids are positive");
static_assert(every_kernel([](const KernelInfo& k) { return k.threadgroup_threads() <= 1024; }),
              "a threadgroup has at most 1024 threads");
static_assert(every_kernel([](const KernelInfo& k) { return k.threads[0] * k.threads[1] == k.threadgroup_threads(); }),
              "the threadgroup's shape holds 32 threads per SIMD group");
static_assert(every_kernel([](const KernelInfo& k) { return k.threadgroup_bytes <= 32768; }),
              "a threadgroup has at most 32 KiB of memory");
// matmul2d silently computes wrong values for other tiles.
static_assert(every_kernel([](const KernelInfo& k) {
                return !k.tensorops() || (k.bm % 16 == 0 && k.bn % 32 == 0 && k.bk % 32 == 0);
              }),
              "TensorOps tiles have M in multiples of 16, N of 32 and static K of 32");
static_assert(every_kernel([](const KernelInfo& k) { return !k.tensorops() || k.min_os >= 2600; }),
              "TensorOps needs macOS 26");
static_assert(every_kernel([](const KernelInfo& k) {
                return k.needs == (needs_whole_tiles(k) ? std::array{k.bm, k.bn, k.bk} : std::array{1, 1, 1});
              }),
              "bodies without edge handling need whole tiles, the others take any shape");

// ---- Names ----

// Insertions, deletions and substitutions that turn one word into the other.
int edit_distance(std::string_view from, std::string_view to) {
  std::vector<int> row(to.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) {
    row[j] = static_cast<int>(j);
  }
  for (size_t i = 0; i < from.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i) + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      const int substituted = diagonal + (from[i] != to[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, substituted});
    }
  }
  return row.back();
}

std::vector<std::string_view> words(std::string_view list) {
  std::vector<std::string_view> result;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    result.push_back(list.substr(0, comma));
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return result;
}

}  // namespace

std::span<const KernelInfo> kernels() { return kKernels; }

const KernelInfo* find_kernel(std::string_view name) {
  const auto* found = std::ranges::find(kKernels, name, &KernelInfo::name);
  return found == std::end(kKernels) ? nullptr : found;
}

std::vector<std::string> nearest_kernels(std::string_view name, int count) {
  std::vector<std::pair<int, std::string_view>> ranked;
  for (const KernelInfo& kernel : kKernels) {
    ranked.emplace_back(edit_distance(name, kernel.name), kernel.name);
  }
  std::ranges::stable_sort(ranked, {}, [](const auto& entry) { return entry.first; });
  std::vector<std::string> names;
  for (const auto& [distance, candidate] : std::span(ranked).first(std::min<size_t>(count, ranked.size()))) {
    names.emplace_back(candidate);
  }
  return names;
}

bool lists(std::string_view list, std::string_view word) { return std::ranges::count(words(list), word) > 0; }

std::vector<std::string_view> layouts_of(const KernelInfo& kernel) { return words(kernel.layouts); }
std::vector<std::string_view> dtypes_of(const KernelInfo& kernel) { return words(kernel.dtypes); }

std::string function_name(const KernelInfo& kernel, Dtype in, Dtype out) {
  const std::string name(kernel.function.empty() ? kernel.name : kernel.function);
  return kernel.fused() ? name + "_" + to_string(in) + "_" + to_string(out) : name;
}

int64_t max_extent(const KernelInfo& kernel) {
  constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
  if (kernel.fused()) {
    return std::numeric_limits<int64_t>::max();  // every tile starts at a 64-bit pointer
  }
  return kernel.tensorops() ? kInt32Max / bytes_per_element(Dtype::float32) : kInt32Max;
}

std::array<int64_t, 2> grid_of(const KernelInfo& kernel, const Problem& problem) {
  const int64_t columns = tiles(problem.N, kernel.bn);
  const int64_t rows = tiles(problem.M, kernel.bm);
  if (kernel.order == TileOrder::morton) {
    return {columns * rows, 1};
  }
  const int swizzle = static_cast<int>(kernel.order);
  return {columns << swizzle, tiles(rows, 1 << swizzle)};
}

int64_t requested_read_bytes(const KernelInfo& kernel, const Problem& problem) {
  const auto [rows, columns] = kernel.read_tile;
  const int64_t a_reads = problem.M * problem.K * tiles(problem.N, columns);
  const int64_t b_reads = problem.K * problem.N * tiles(problem.M, rows);
  return (a_reads + b_reads) * bytes_per_element(problem.dtype);
}

const char* to_string(Math math) {
  switch (math) {
    case Math::exact:
      return "exact";
    case Math::tf32:
      return "tf32";
    case Math::split:
      return "split";
  }
  return "?";
}

const char* to_string(Role role) {
  switch (role) {
    case Role::ladder:
      return "ladder";
    case Role::automatic:
      return "automatic";
    case Role::by_name:
      return "by_name";
  }
  return "?";
}

const char* to_string(TileOrder order) {
  switch (order) {
    case TileOrder::row_major:
      return "row_major";
    case TileOrder::swizzle_1:
      return "swizzle_1";
    case TileOrder::swizzle_2:
      return "swizzle_2";
    case TileOrder::swizzle_3:
      return "swizzle_3";
    case TileOrder::morton:
      return "morton";
  }
  return "?";
}

}  // namespace mlx_gemm
