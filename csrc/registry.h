// What kernels exist: the table expanded from metal/shared/gemm_kernels.def.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/problem.h"
#include "metal/shared/params.h"

namespace mlx_gemm {

enum class Math { exact, tf32, split };
enum class Role { ladder, automatic, by_name };

struct KernelInfo {
  std::string_view name;
  std::string_view body;  // template in metal/ that the row instantiates

  // Tile of a threadgroup and the SIMD groups over it; bk is 0 where one operation spans all of K.
  int bm;
  int bn;
  int bk;
  int wm;
  int wn;
  TileOrder order;

  std::array<int, 2> threads{0, 1};    // threadgroup shape; a row without one gets {32*wm*wn, 1}
  std::array<int, 3> needs{1, 1, 1};   // M, N and K must be multiples of these
  std::array<int, 2> read_tile{1, 1};  // output block whose device reads are shared
  int threadgroup_bytes = 0;
  int min_generation = 13;              // Apple GPU generation, 13 = M1
  int min_os = 1400;                    // macOS version, 100*major + minor
  std::string_view dtypes = "float32";  // of A and B, comma-separated; C has the same type, or float32
  Dtype accumulate = Dtype::float32;
  Math math = Math::exact;
  std::string_view layouts = "nn";  // comma-separated
  bool deterministic = true;
  Role role = Role::ladder;
  std::string_view function = {};  // the row whose Metal functions this one launches otherwise; empty: its own
  std::string_view summary;

  constexpr int simdgroups() const { return wm * wn; }
  constexpr int threadgroup_threads() const { return 32 * wm * wn; }
  // First part of the body's name: naive, tiled, coarse, simdgroup, tensorops or simd.
  constexpr std::string_view family() const { return body.substr(0, body.find('_')); }
  constexpr bool tensorops() const { return family() == "tensorops"; }
  // Production kernels: any shape, layout and batch, with an epilogue.
  constexpr bool fused() const { return body.find("_gemm") != std::string_view::npos; }
};

// Tiles that cover `length` rows or columns.
constexpr int64_t tiles(int64_t length, int tile) { return (length + tile - 1) / tile; }

std::span<const KernelInfo> kernels();

// nullptr when there is no such kernel.
const KernelInfo* find_kernel(std::string_view name);

// The registered names closest to `name`, best first, for "did you mean" messages.
std::vector<std::string> nearest_kernels(std::string_view name, int count = 3);

// Whether `word` is one of a comma-separated list.
bool lists(std::string_view list, std::string_view word);
std::vector<std::string_view> layouts_of(const KernelInfo& kernel);
std::vector<std::string_view> dtypes_of(const KernelInfo& kernel);

// Name of the Metal function: production kernels have one for each pair of types.
std::string function_name(const KernelInfo& kernel, Dtype in, Dtype out);

// Elements that one operand of the kernel may span: ladder kernels index with 32-bit integers, and a slice that starts
// 2 GiB or more into its tensor is addressed wrongly by current GPUs.
int64_t max_extent(const KernelInfo& kernel);

// Production kernels of TensorOps make a tensor of each tile, which must span less.
constexpr int64_t kMaxTileBytes = int64_t(1) << 31;

// Threadgroups along x and y.
std::array<int64_t, 2> grid_of(const KernelInfo& kernel, const Problem& problem);

// Device bytes that the kernel asks for if nothing is cached: every element of A and B once per read_tile that uses it.
int64_t requested_read_bytes(const KernelInfo& kernel, const Problem& problem);

const char* to_string(Math math);
const char* to_string(Role role);
const char* to_string(TileOrder order);

}  // namespace mlx_gemm
