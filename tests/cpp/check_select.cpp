// Checks the portable C++ against numbers worked out by hand: which kernel may run what and which rule it breaks, what
// stands in for one that a GPU does not allow its threads, what a GPU is, layouts and copies, launch records field by
// field, requested bytes, extents, names, routes, and the tile that each threadgroup computes. Exits 1 when anything
// differs.
#include <cstring>
#include <limits>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "csrc/backends/apple_gpu.h"
#include "csrc/backends/launch_sequence.h"
#include "csrc/metal_policy.h"
#include "csrc/select.h"
#include "expect.h"
#include "metal/common/tile_order.h"

namespace {

using namespace mlx_gemm;

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
const DeviceTraits kCpu{.backend = Backend::cpu, .blas = true};
const DeviceTraits kM5{.backend = Backend::metal, .architecture = "applegpu_g17g", .generation = 17, .os = 2602};

const KernelInfo& kernel(std::string_view name) { return *find_kernel(name); }

// A row-major product without gaps between rows.
Problem product(int64_t M, int64_t N, int64_t K) { return {.M = M, .N = N, .K = K, .lda = K, .ldb = N}; }

std::string broken(std::string_view name, const Problem& problem, const DeviceTraits& device = kCpu) {
  return unsupported(kernel(name), problem, device).value_or("");
}

// ---- Legality ----

void check_shapes() {
  for (const KernelInfo& k : kernels()) {
    const auto [m, n, p] = k.needs;
    same(broken(k.name, product(m, n, p)), "");
    same(broken(k.name, product(3 * m, 2 * n, 5 * p)), "");
  }
  same(broken("simdgroup_32x32", product(33, 32, 8)), "simdgroup_32x32 needs M to be a multiple of 32, got M=33");
  same(broken("simdgroup_32x32", product(32, 40, 8)), "simdgroup_32x32 needs N to be a multiple of 32, got N=40");
  same(broken("simdgroup_32x32", product(32, 32, 12)), "simdgroup_32x32 needs K to be a multiple of 8, got K=12");
  same(broken("tensorops_sync_64x128_k512", product(64, 64, 512)),
       "tensorops_sync_64x128_k512 needs N to be a multiple of 128, got N=64");
  same(broken("tensorops_sync_64x128_k512", product(128, 128, 256)),
       "tensorops_sync_64x128_k512 needs K to be a multiple of 512, got K=256");
  same(broken("naive", product(0, 1, 1)), "naive needs M to be at least 1, got M=0");
  same(broken("naive", product(1, 0, 1)), "naive needs N to be at least 1, got N=0");
  same(broken("naive", product(1, 1, 0)), "naive needs K to be at least 1, got K=0");
  same(broken("simdgroup_8x8", product(-8, 8, 8)), "simdgroup_8x8 needs M to be at least 1, got M=-8");
}

void check_types_and_layouts() {
  for (const Dtype dtype : {Dtype::float16, Dtype::bfloat16, Dtype::float64, Dtype::complex64}) {
    Problem problem = product(8, 8, 8);
    problem.dtype = dtype;
    same(broken("tiled_16", problem), std::string("tiled_16 multiplies float32, got ") + to_string(dtype));
  }
  for (const Layout layout : {Layout::nt, Layout::tn, Layout::tt}) {
    Problem problem = product(8, 8, 8);
    problem.layout = layout;
    same(broken("tiled_16", problem), std::string("tiled_16 takes operands in layout nn, got ") + to_string(layout));
  }
  KernelInfo two_layouts = kernel("tiled_16");
  two_layouts.layouts = "nn,tt";
  Problem problem = product(8, 8, 8);
  problem.layout = Layout::tt;
  same(unsupported(two_layouts, problem, kCpu).has_value(), false);
  problem.layout = Layout::nt;
  same(unsupported(two_layouts, problem, kCpu).value_or(""), "tiled_16 takes operands in layout nn,tt, got nt");
}

void check_devices() {
  const Problem problem = product(64, 64, 64);
  same(broken("tensorops_64x64", problem, kM5), "");
  const DeviceTraits cuda{.backend = Backend::cuda};
  same(broken("naive", problem, cuda),
       "naive is a Metal kernel: it runs on Apple GPUs and on a CPU, not on CUDA devices");
  DeviceTraits device = kM5;
  device.os = 2600;
  same(broken("tensorops_64x64", problem, device), "");
  device.os = 1506;
  same(broken("tensorops_64x64", problem, device), "tensorops_64x64 needs macOS 26.0, this is 15.6");
  same(broken("naive", problem, device), "");
  device = {.backend = Backend::metal, .architecture = "applegpu_g13g", .generation = 13, .os = 1400};
  same(broken("naive", problem, device), "");
  device.architecture = "applegpu_g12p";
  device.generation = 12;
  same(broken("naive", problem, device), "naive needs an Apple GPU of generation 13, got applegpu_g12p");
}

std::string too_long(std::string_view name, int64_t length) {
  return std::string(name) + " takes sizes and leading dimensions that fit 32 bits with a tile to spare, got " +
         std::to_string(length);
}

std::string too_large(std::string_view name, int64_t limit, char operand, int64_t extent) {
  return std::string(name) + " takes matrices of at most " + std::to_string(limit) + " elements, " + operand +
         " spans " + std::to_string(extent);
}

void check_sizes() {
  same(broken("tiled_16", product(kInt32Max - 16, 1, 1)), "");
  same(broken("tiled_16", product(kInt32Max - 15, 1, 1)), too_long("tiled_16", kInt32Max - 15));
  same(broken("tiled_16", product(1, kInt32Max - 16, 1)), "");
  same(broken("tiled_16", product(1, kInt32Max - 15, 1)), too_long("tiled_16", kInt32Max - 15));
  same(broken("coarse_2d", product(1, 1, kInt32Max - 8)), "");
  same(broken("coarse_2d", product(1, 1, kInt32Max - 7)), too_long("coarse_2d", kInt32Max - 7));
  // M leaves room for 64 rows and N for 128 columns; the extents are too large in any case.
  const auto short_enough = [](const char* name, int64_t M, int64_t N) {
    return broken(name, product(M, N, 1)).find("a tile to spare") == std::string::npos;
  };
  same(short_enough("tensorops_64x128", kInt32Max - 64, 1), true);
  same(short_enough("tensorops_64x128", kInt32Max - 63, 1), false);
  same(short_enough("tensorops_64x128", 1, kInt32Max - 128), true);
  same(short_enough("tensorops_64x128", 1, kInt32Max - 127), false);

  const Problem row_and_column{.M = 1, .N = 1, .K = 1, .lda = kInt32Max, .ldb = kInt32Max};
  same(broken("naive", row_and_column), "");
  Problem problem = row_and_column;
  problem.lda = kInt32Max + 1;
  same(broken("naive", problem), too_long("naive", kInt32Max + 1));
  problem = row_and_column;
  problem.ldb = kInt32Max + 1;
  same(broken("naive", problem), too_long("naive", kInt32Max + 1));

  constexpr int64_t k2to31 = int64_t(1) << 31;
  same(broken("naive", product(1 << 16, 1, 1 << 15)), too_large("naive", kInt32Max, 'A', k2to31));
  same(broken("naive", product(1, 1 << 16, 1 << 15)), too_large("naive", kInt32Max, 'B', k2to31));
  same(broken("naive", product(1 << 16, 1 << 15, 1)), too_large("naive", kInt32Max, 'C', k2to31));
  same(broken("naive", product(46340, 46340, 1)), "");
  // One element less than 2^31: gaps between rows count, the gap after the last row does not.
  same(broken("naive", {.M = 2, .N = 1, .K = 1, .lda = kInt32Max - 1, .ldb = 1}), "");
  same(broken("naive", {.M = 2, .N = 1, .K = 1, .lda = kInt32Max, .ldb = 1}),
       too_large("naive", kInt32Max, 'A', k2to31));

  // Slices of TensorOps start less than 2 GiB into an operand: 2^29 - 1 floats.
  constexpr int64_t kFloats = (int64_t(1) << 29) - 1;
  same(max_extent(kernel("tensorops_64x64")), kFloats);
  same(max_extent(kernel("tensorops_sync_64x64_k128")), kFloats);
  same(max_extent(kernel("coarse_2d")), kInt32Max);
  same(broken("tensorops_64x64", product(kFloats, 1, 1)), "");
  same(broken("tensorops_64x64", product(1 << 14, 1, 1 << 15)),
       too_large("tensorops_64x64", kFloats, 'A', kFloats + 1));

  // A position in the grid has 32 bits: 2^23 - 1 threadgroups of 512 threads, 2^32 - 512.
  constexpr int64_t kColumns = int64_t(64) * ((1 << 23) - 1);
  same(broken("coarse_1d", product(1, kColumns, 1)), "");
  same(broken("coarse_1d", product(1, kColumns + 1, 1)),
       "coarse_1d takes grids of at most 4294967295 threads along x, got 4294967296");
  same(broken("coarse_1d", product(kColumns + 1, 1, 1)), "");
  KernelInfo tall = kernel("coarse_1d");
  std::swap(tall.threads[0], tall.threads[1]);
  same(unsupported(tall, product(kColumns + 1, 1, 1), kCpu).value_or(""),
       "coarse_1d takes grids of at most 4294967295 threads along y, got 4294967296");
}

// ---- The registry ----

void check_rows() {
  same(kernels().size(), 45);
  for (const KernelInfo& k : kernels()) {
    same(find_kernel(k.name), &k);
    const bool staged = k.family() == "tiled" || k.family() == "coarse";
    // Blocks as they are stored, plain or transposed, with 16 bytes after every row.
    const auto block = [](int rows, int columns) { return std::max(rows * (columns + 4), columns * (rows + 4)); };
    const int padded = k.name == "simdgroup_32x32_shared" ? 2 * 32 * 33 * 4
                       : k.body == "simd_gemm"            ? 4 * (block(k.bm, k.bk) + block(k.bk, k.bn))
                                                          : 0;
    same(k.threadgroup_bytes, staged ? 4 * k.bk * (k.bm + k.bn) : padded);
    same(k.fused(), k.name.find("_gemm_") != std::string_view::npos);
    same(k.dtypes, k.fused() && k.math == Math::exact ? "float32,float16,bfloat16" : "float32");
    same(k.layouts, k.fused() ? "nn,nt,tn,tt" : "nn");
    same(k.role == Role::ladder, !k.fused());
    const int shared = k.name == "naive"                                                   ? 1
                       : k.name == "simdgroup_32x32" || k.name == "simd_gemm_direct_32x32" ? 16
                                                                                           : 0;
    same(k.read_tile[0], shared ? shared : k.bm);
    same(k.read_tile[1], shared ? shared : k.bn);
    same(k.min_os, k.tensorops() ? 2600 : 1400);
    same(k.min_generation, 13);
    same(k.name.ends_with("_morton"), k.order == TileOrder::morton);
    same(k.threads[0], k.name == "tiled_16"                             ? 16
                       : k.family() == "naive" || k.family() == "tiled" ? 32
                                                                        : 32 * k.wm * k.wn);
    same(k.threads[1], k.name == "tiled_16" ? 16 : k.family() == "naive" || k.family() == "tiled" ? 32 : 1);
  }
  same(find_kernel("") == nullptr, true);
  same(find_kernel("naiv") == nullptr, true);
}

void check_requested_bytes() {
  const auto bytes = [](const char* name, int64_t M, int64_t N, int64_t K) {
    return requested_read_bytes(kernel(name), product(M, N, K));
  };
  same(bytes("naive", 2, 3, 5), 8 * 2 * 3 * 5);
  same(bytes("tiled_16", 17, 33, 3), 4 * 3 * (17 * 3 + 33 * 2));
  same(bytes("tensorops_64x128", 100, 200, 10), 4 * 10 * (100 * 2 + 200 * 2));
  same(bytes("tensorops_128x64", 100, 200, 10), 4 * 10 * (100 * 4 + 200 * 1));
  same(bytes("simdgroup_8x8", 8, 16, 8), 4 * 8 * (8 * 2 + 16 * 1));
  same(bytes("simdgroup_32x32", 32, 64, 8), 4 * 8 * (32 * 4 + 64 * 2));
  same(bytes("simdgroup_32x32_shared", 32, 64, 32), 4 * 32 * (32 * 2 + 64 * 1));
  same(bytes("coarse_2d", 128, 129, 1), 4 * (128 * 2 + 129 * 1));
}

std::string join(const auto& words) {
  std::string text;
  for (const auto& word : words) {
    text += (text.empty() ? "" : " ") + std::string(word);
  }
  return text;
}

void check_names() {
  same(join(nearest_kernels("naiv", 1)), "naive");
  same(join(nearest_kernels("tiled_23", 2)), "tiled_16 tiled_32");  // both two letters away: in registry order
  same(join(nearest_kernels("tiled32")), "tiled_32 tiled_16 tiled_32k16");
  same(join(nearest_kernels("simdgroup_32x32_share", 2)), "simdgroup_32x32_shared simdgroup_32x32");
  same(join(nearest_kernels("tensorops_64_64", 1)), "tensorops_64x64");
  same(join(nearest_kernels("xcoarse_1d", 1)), "coarse_1d");
  same(nearest_kernels("naive", 1000).size(), kernels().size());
  same(nearest_kernels("naive", 0).size(), 0);

  KernelInfo k = kernel("naive");
  same(join(layouts_of(k)), "nn");
  k.layouts = "nn,nt,tt";
  same(join(layouts_of(k)), "nn nt tt");
  same(std::string(to_string(Math::exact)) + to_string(Math::tf32) + to_string(Math::split), "exacttf32split");
  same(std::string(to_string(Role::ladder)) + to_string(Role::automatic) + to_string(Role::by_name),
       "ladderautomaticby_name");
  same(std::string(to_string(TileOrder::row_major)) + to_string(TileOrder::morton), "row_majormorton");
}

// ---- Problems ----

void check_problems() {
  Problem p{.M = 3, .N = 5, .K = 7, .lda = 11, .ldb = 13};
  const auto extents = [&](Layout layout) {
    p.layout = layout;
    return std::to_string(a_extent(p)) + " " + std::to_string(b_extent(p)) + " " + std::to_string(c_extent(p));
  };
  same(extents(Layout::nn), "29 83 15");  // 2 * 11 + 7, 6 * 13 + 5
  same(extents(Layout::nt), "29 59 15");  //             4 * 13 + 7
  same(extents(Layout::tn), "69 83 15");  // 6 * 11 + 3
  same(extents(Layout::tt), "69 59 15");

  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      const Layout layout = make_layout(a, b);
      same(std::string(to_string(layout)), std::string(a ? "t" : "n") + (b ? "t" : "n"));
      same(a_transposed(layout), a);
      same(b_transposed(layout), b);
    }
  }
  same(bytes_per_element(Dtype::float16), 2);
  same(bytes_per_element(Dtype::bfloat16), 2);
  same(bytes_per_element(Dtype::float32), 4);
  same(bytes_per_element(Dtype::float64), 8);
  same(bytes_per_element(Dtype::complex64), 8);
  p.layout = Layout::tn;
  p.dtype = Dtype::bfloat16;
  same(describe(p), "M=3 N=5 K=7 tn bfloat16");
  p.batch = 2;
  same(describe(p), "M=3 N=5 K=7 batch=2 tn bfloat16");
}

// ---- Routes ----

std::string told(const std::vector<Rejection>& rejected, size_t index) {
  return index < rejected.size() ? rejected[index].candidate + ": " + rejected[index].reason : "";
}

std::string told(const Plan& plan) { return std::string(to_string(plan.route)) + ": " + why(plan); }

std::string_view chosen(const Problem& problem, const DeviceTraits& device) {
  const Plan plan = choose(problem, device);
  return plan.kernel == nullptr ? "" : plan.kernel->name;
}

// Over problems of every kind and devices of every class: each row of the policy decides somewhere, no kernel is chosen
// that cannot run the problem, and where MLX will not do one always is.
void check_every_row() {
  std::set<std::pair<std::string_view, std::string>> decided;
  for (const char* architecture : {"applegpu_g13g", "applegpu_g14d", "applegpu_g15s", "applegpu_g16c", "applegpu_g17g",
                                   "applegpu_g17s", "applegpu_g18p"}) {
    for (const int os : {1400, 2600, 2602}) {
      for (const char* tf32 : {"0", "1"}) {
        const DeviceTraits device =
            apple_gpu_traits({.architecture = architecture,
                              .os_version = std::to_string(os / 100) + "." + std::to_string(os % 100),
                              .tf32_setting = tf32});
        for (const Dtype dtype : {Dtype::float32, Dtype::float16, Dtype::bfloat16, Dtype::float64, Dtype::complex64}) {
          for (const int64_t size : {1, 16, 40, 64, 128, 200, 256, 384, 1000, 1024, 1 << 24}) {
            for (const Layout layout : {Layout::nn, Layout::nt, Layout::tn, Layout::tt}) {
              for (const int variant : {0, 1, 2}) {
                Problem problem{.M = size,
                                .N = size,
                                .K = size,
                                .lda = size,
                                .ldb = size,
                                .layout = layout,
                                .dtype = dtype,
                                .out = variant == 2 ? Dtype::float32 : dtype,
                                .fuses = variant == 1};
                const Plan plan = choose(problem, device);
                if (plan.kernel == nullptr) {
                  const bool real = dtype != Dtype::float64 && dtype != Dtype::complex64;
                  const bool one_pass = problem.fuses || problem.out != problem.dtype;
                  same(real && (one_pass || lowering_loses_precision(dtype, device)), false);
                  continue;
                }
                same(unsupported(*plan.kernel, problem, device).value_or(""), "");
                same(plan.kernel->role == Role::by_name, false);
                decided.insert({plan.kernel->name, why(plan)});
              }
            }
          }
        }
      }
    }
  }
  for (const PolicyRow& row : metal_policy()) {
    same(find_kernel(row.kernel) != nullptr, true);
    same(decided.contains({row.kernel, std::string(row.reason) + " (" + std::string(row.evidence) + ")"}), true);
  }
}

void check_policy() {
  DeviceTraits tf32 = kM5;
  tf32.tf32 = true;
  // True float32 on an M5, by shape.
  same(chosen(product(64, 128, 512), tf32), "tensorops_sync_64x64_k256");
  same(chosen(product(1, 4096, 4096), tf32), "tensorops_gemm_16x128_k256");
  same(chosen(product(16, 4096, 4096), tf32), "tensorops_gemm_16x128_k256");
  same(chosen(product(17, 4096, 4096), tf32), "tensorops_gemm_32x64_k256");
  same(chosen(product(63, 4096, 4096), tf32), "tensorops_gemm_32x64_k256");
  same(chosen(product(65, 200, 31), tf32), "tensorops_gemm_32x32_k256");
  same(chosen(product(257, 200, 31), tf32), "tensorops_gemm_64x64_k256");
  same(chosen(product(200, 257, 31), tf32), "tensorops_gemm_64x64_k256");
  // Rows too long for a tensor over a tile.
  same(chosen(product(64, 64, int64_t(1) << 30), tf32), "simd_gemm_64x64_k16");
  same(chosen(product(257, 200, 31), kM5), "");
  Problem batch = product(64, 128, 512);
  batch.batch = 2;
  same(chosen(batch, tf32), "tensorops_gemm_32x32_k256");

  Problem fused = product(512, 512, 512);
  fused.fuses = true;
  same(chosen(fused, kM5), "tensorops_gemm_64x64_k256");
  fused.dtype = fused.out = Dtype::bfloat16;
  same(chosen(fused, kM5), "tensorops_gemm_64x64_k256");
  DeviceTraits early = kM5;
  early.os = 2600;
  same(chosen(fused, early), "simd_gemm_64x64_k16_1x2");
  same(unsupported(kernel("tensorops_gemm_64x64_k256"), fused, early).value_or(""),
       "tensorops_gemm_64x64_k256 needs macOS 26.1 for bfloat16, this is 26.0");
  early.os = 2601;
  same(chosen(fused, early), "tensorops_gemm_64x64_k256");

  // SIMD-group tiles by class of GPU.
  DeviceTraits base = kM5;
  base.generation = 15;
  base.architecture = "applegpu_g15g";
  same(chosen(fused, base), "simd_gemm_64x64_k16_1x2");
  fused.layout = Layout::nt;
  same(chosen(fused, base), "simd_gemm_64x32_k32");
  base.architecture = "applegpu_g15s";
  same(chosen(fused, base), "simd_gemm_64x64_k16");
  base.architecture = "applegpu_g15d";
  same(chosen(fused, base), "simd_gemm_64x64_k16_1x2");
  fused.dtype = fused.out = Dtype::float32;
  same(chosen(fused, base), "simd_gemm_32x64_k16_1x2");
  fused.M = 2048;
  same(chosen(fused, base), "simd_gemm_64x64_k16");

  // float32 from half types.
  Problem widened = product(512, 512, 512);
  widened.dtype = Dtype::float16;
  same(chosen(widened, kM5), "tensorops_gemm_64x64_k256");
  widened.out = Dtype::float16;
  same(chosen(widened, kM5), "");
  same(unsupported(kernel("simd_gemm_64x64_k16"),
                   {.M = 1, .N = 1, .K = 1, .dtype = Dtype::float32, .out = Dtype::float16}, kCpu)
           .value_or(""),
       "simd_gemm_64x64_k16 returns the type of its operands or float32, asked for float16");
  same(unsupported(kernel("tensorops_gemm_64x64_k256_tf32"), widened, kCpu).value_or(""),
       "tensorops_gemm_64x64_k256_tf32 multiplies float32, got float16");
  check_every_row();
}

void check_tile_spans() {
  // 256 steps of the stored rows of B: 2^31 bytes are one too many.
  const KernelInfo& k = kernel("tensorops_gemm_64x64_k256");
  Problem wide = product(64, (int64_t(1) << 21) - 1, 300);
  same(unsupported(k, wide, kCpu).value_or(""), "");
  wide.N = wide.ldb = int64_t(1) << 21;
  same(unsupported(k, wide, kCpu).value_or(""),
       "tensorops_gemm_64x64_k256 takes tiles that span less than 2147483648 bytes, one of B has 256 rows of 2097152 "
       "elements");
  wide.layout = Layout::nt;
  wide.ldb = (int64_t(1) << 23) - 1;
  same(unsupported(k, wide, kCpu).value_or(""), "");
  Problem tall = product(64, 64, 300);
  tall.layout = Layout::tn;
  tall.lda = int64_t(1) << 21;
  same(unsupported(k, tall, kCpu).value_or(""),
       "tensorops_gemm_64x64_k256 takes tiles that span less than 2147483648 bytes, one of A has 256 rows of 2097152 "
       "elements");
  // The same memory is addressed in place where a tile of it spans less, and copied where not.
  const auto copied = [&](std::string_view name, int64_t ld) {
    const Addressing addressing = addressing_of(kernel(name), Dtype::float32, 300);
    return view_gemm({{64, 300}, {ld, 1}}, {{300, 64}, {64, 1}}, addressing).copied_a.has_value();
  };
  same(copied("tensorops_gemm_64x64_k256", (int64_t(1) << 21) - 1), false);
  same(copied("tensorops_gemm_64x64_k256", int64_t(1) << 21), true);
  same(copied("tensorops_gemm_64x64", int64_t(1) << 21), true);
  same(copied("simd_gemm_64x64_k16", int64_t(1) << 30), false);
}

void check_addends() {
  const GemmView joined =
      view_gemm(row_contiguous(std::vector{3, 4, 5}), row_contiguous(std::vector{5, 6}), kBlasAddressing);
  same(joined.loop.size(), 0);
  const auto row = view_addend({{3, 4, 6}, {0, 0, 1}}, joined);
  same(row.has_value(), true);
  same(row->row_stride, 0);
  same(row->column_stride, 1);
  const auto full = view_addend({{3, 4, 6}, {24, 6, 1}}, joined);
  same(full->row_stride, 6);
  // The same matrix for every index of the batch: no stride covers the joined rows.
  same(view_addend({{3, 4, 6}, {0, 6, 1}}, joined).has_value(), false);
  same(view_addend({{1, 4, 6}, {0, 6, 1}}, joined)->row_stride, 6);
  const GemmView looped =
      view_gemm(row_contiguous(std::vector{3, 4, 5}), row_contiguous(std::vector{3, 5, 6}), kBlasAddressing);
  const auto step = view_addend({{3, 4, 6}, {0, 6, 1}}, looped);
  same(step->steps.at(0), 0);
  same(step->row_stride, 6);
}

void check_routes() {
  const Problem problem = product(64, 64, 64);
  const Plan forced = choose(problem, kM5, &kernel("naive"));
  same(told(forced), "kernel: named by the caller");
  same(forced.kernel, &kernel("naive"));
  same(rejections(problem, kM5, forced).size(), 0);

  const Plan blas = choose(problem, kCpu);
  same(told(blas), "blas: float32 on a CPU stream: OpenBLAS");
  same(blas.kernel == nullptr, true);
  same(blas.copies, 0);
  const std::vector<Rejection> passed_over = rejections(problem, kCpu, blas);
  same(passed_over.size(), kernels().size());
  same(told(passed_over, 0), "naive: runs only when it is named");

  Problem other = problem;
  other.dtype = Dtype::float16;
  same(told(choose(other, kCpu)), "blas: float16 on a CPU stream: OpenBLAS on parts widened to float32");
  const DeviceTraits without_blas{.backend = Backend::cpu};
  const std::vector<Rejection> all = rejections(other, without_blas, choose(other, without_blas));
  same(all.size(), kernels().size() + 1);
  same(told(all, 0), "blas: no BLAS is loaded");
  same(told(all, 1), "naive: naive multiplies float32, got float16");

  other.dtype = Dtype::bfloat16;
  same(told(choose(other, kCpu)), "blas: bfloat16 on a CPU stream: the CPU's own products, or OpenBLAS in float32");
  other.dtype = Dtype::float64;
  same(told(choose(other, kCpu)), "blas: float64 on a CPU stream: OpenBLAS");
  other.dtype = Dtype::complex64;
  same(told(choose(other, kCpu)), "blas: complex64 on a CPU stream: OpenBLAS");

  other = problem;
  other.batch = 2;
  same(choose(other, kCpu).route == Route::blas, true);
  same(told(choose(problem, {.backend = Backend::cpu})), "mlx: no BLAS is loaded");
  const Plan gpu = choose(problem, kM5);
  same(told(gpu), "mlx: no kernel is known to be faster here");
  check_policy();
  Problem aligned{.M = 64, .N = 128, .K = 512, .lda = 512, .ldb = 128};
  same(choose(aligned, kM5).kernel == find_kernel("tensorops_sync_64x64_k256"), true);
  aligned.K = aligned.lda = 384;
  same(choose(aligned, kM5).kernel == find_kernel("tensorops_sync_64x64_k128"), true);
  DeviceTraits older = kM5;
  older.generation = 16;
  same(told(choose(aligned, older)), "mlx: no kernel is known to be faster here");
  same(rejections(problem, kM5, gpu).size(), kernels().size());
  same(told(choose(problem, {.backend = Backend::cuda})), "mlx: no kernel is chosen by itself on CUDA devices yet");

  DeviceTraits tf32 = kM5;
  tf32.tf32 = true;
  same(lowering_loses_precision(Dtype::float32, tf32), true);
  same(lowering_loses_precision(Dtype::float16, tf32), false);
  same(lowering_loses_precision(Dtype::float32, kM5), false);
  same(lowering_loses_precision(Dtype::float16, kM5), false);
}

// ---- Limits of compiled kernels ----

// The kernel that runs where these allow no more threads than that, or why there is none.
std::string within(const Chosen& chosen, const Problem& problem, const std::vector<std::pair<std::string, int>>& limits,
                   const DeviceTraits& device = kM5) {
  const auto limit = [&](const KernelInfo& k) {
    for (const auto& [prefix, threads] : limits) {
      if (k.name.starts_with(prefix)) {
        return threads;
      }
    }
    return 1024;
  };
  try {
    return std::string(kernel_within_limit(chosen, problem, device, limit).name);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

void check_limits() {
  const Problem problem = product(64, 128, 512);
  const KernelInfo* k256 = &kernel("tensorops_sync_64x64_k256");
  same(within({k256, false}, problem, {}), "tensorops_sync_64x64_k256");
  same(within({k256, false}, problem, {{"tensorops_sync_64x64_k256", 128}}), "tensorops_sync_64x64_k256");
  same(within({k256, false}, problem, {{"tensorops_sync_64x64_k256", 96}}), "tensorops_sync_64x64_k128");
  same(within({k256, true}, problem, {{"tensorops_sync_64x64_k256", 96}}),
       "[mlx_gemm.matmul] tensorops_sync_64x64_k256 needs 128 threads per threadgroup, this GPU allows it 96");
  // None of the policy's: then the fewest threads, in the order of the registry.
  same(within({k256, false}, problem, {{"tensorops_sync", 96}}), "simdgroup_8x8");
  same(within({k256, false}, problem, {{"tensorops_sync", 96}, {"simdgroup", 16}}), "tensorops_32x32_sg1");
  // A product with an epilogue stays with the kernels that have one.
  same(within({&kernel("tensorops_gemm_64x64_k256"), false}, problem, {{"tensorops_gemm_64x64", 96}}),
       "tensorops_gemm_32x32_k256");
  DeviceTraits older = kM5;
  older.os = 1500;
  same(within({&kernel("naive"), false}, product(3, 3, 3), {{"naive", 512}}, older), "simd_gemm_64x64_k16_1x2");
  same(within({&kernel("naive"), false}, product(3, 3, 3), {{"", 0}}, older),
       "[mlx_gemm.matmul] naive needs 1024 threads per threadgroup, this GPU allows it 0, and no other kernel takes "
       "M=3 N=3 K=3 nn float32");
}

// ---- Apple GPUs ----

// The start of a loaded library: header, a command of 16 bytes, and one with platform and version.
struct MachImage {
  uint32_t header[8] = {0xfeedfacf, 0x0100000c, 0, 6, 2, 40, 0, 0};
  uint32_t other[4] = {0x1b, 16, 0, 0};
  uint32_t build[6] = {0x32, 24, 1, 0x1a0201, 0x1a0400, 0};
};

int minimum_os_of(const MachImage& image) { return minimum_os(reinterpret_cast<const std::byte*>(&image)); }

void check_apple_gpus() {
  same(apple_gpu_generation("applegpu_g13g"), 13);
  same(apple_gpu_generation("applegpu_g17s"), 17);
  same(apple_gpu_generation("applegpu_g18p"), 18);
  same(apple_gpu_generation("applegpu_gx"), 0);
  same(apple_gpu_generation("g17g"), 0);
  same(apple_gpu_generation(""), 0);

  same(parse_os_version("26.2.1"), 2602);
  same(parse_os_version("14.0"), 1400);
  same(parse_os_version("15.7"), 1507);
  same(parse_os_version("27"), 2700);
  same(parse_os_version(""), 0);
  same(parse_os_version("beta"), 0);

  MachImage image;
  same(minimum_os_of(image), 2602);
  image.build[3] = 0x0e0000;
  same(minimum_os_of(image), 1400);
  image.build[2] = 2;  // iOS
  same(minimum_os_of(image), 0);
  image = {};
  image.header[4] = 1;  // the version lies behind the commands
  same(minimum_os_of(image), 0);
  image = {};
  image.header[0] = 0xcafebabe;
  same(minimum_os_of(image), 0);

  const AppleGpuFacts m5{"applegpu_g17g", "26.2.1", int64_t(32) << 30, 2602, nullptr};
  const DeviceTraits gpu = apple_gpu_traits(m5);
  same(std::string(to_string(gpu.backend)), "metal");
  same(gpu.tf32, true);
  same(describe(gpu), "applegpu_g17g, generation 17, macOS 26.2, 32 GiB, MLX for macOS 26.2, MLX_ENABLE_TF32 on");
  const auto tf32 = [&](auto change) {
    AppleGpuFacts facts = m5;
    change(facts);
    return apple_gpu_traits(facts).tf32;
  };
  same(tf32([](auto& f) { f.tf32_setting = "0"; }), false);
  same(tf32([](auto& f) { f.tf32_setting = "1"; }), true);
  same(tf32([](auto& f) { f.os_version = "26.1"; }), false);
  same(tf32([](auto& f) { f.mlx_os = 1400; }), false);
  same(tf32([](auto& f) { f.mlx_os = 1500; }), false);
  same(tf32([](auto& f) { f.mlx_os = 0; }), true);  // not known: as if it had them
  same(tf32([](auto& f) { f.architecture = "applegpu_g16s"; }), false);
  same(tf32([](auto& f) { f.architecture = "applegpu_g17p"; }), false);
  same(tf32([](auto& f) { f.architecture = "applegpu_g18p"; }), true);
  const DeviceTraits m1 = apple_gpu_traits({"applegpu_g13g", "14.5", int64_t(8) << 30, 0, "0"});
  same(describe(m1), "applegpu_g13g, generation 13, macOS 14.5, 8 GiB, MLX for macOS unknown, MLX_ENABLE_TF32 off");
}

// ---- Layouts ----

std::string view(const Strided& a, const Strided& b, const Addressing& addressing) {
  const GemmView view = view_gemm(a, b, addressing);
  std::string text =
      describe(view.problem) + " lda=" + std::to_string(view.problem.lda) + " ldb=" + std::to_string(view.problem.ldb);
  return text + (view.copied_a ? " copy a" : "") + (view.copied_b ? " copy b" : "");
}

void check_layouts() {
  const Strided b{{7, 9}, {9, 1}};
  const Strided apart{{2, 3, 7}, {30, 8, 1}};  // 30 is not 3 rows of 8
  same(view({{2, 3, 7}, {24, 8, 1}}, b, {}), "M=6 N=9 K=7 nn float32 lda=8 ldb=9");
  same(view(apart, b, {}), "M=3 N=9 K=7 batch=2 nn float32 lda=8 ldb=9");
  same(view(apart, b, {.copy_to_join = true}), "M=6 N=9 K=7 nn float32 lda=7 ldb=9 copy a");
  same(view(apart, b, {.join_rows = false, .copy_to_join = true}), "M=3 N=9 K=7 batch=2 nn float32 lda=8 ldb=9");
  // Apart because b has a matrix for each: nothing to join.
  same(view(apart, {{2, 7, 9}, {63, 9, 1}}, {.copy_to_join = true}), "M=3 N=9 K=7 batch=2 nn float32 lda=8 ldb=9");
  const Strided transposed{{7, 9}, {1, 7}};
  same(view(apart, transposed, {.join_rows = false}), "M=3 N=9 K=7 batch=2 nt float32 lda=8 ldb=7");
  same(view(apart, transposed, {.transposed = false, .join_rows = false}),
       "M=3 N=9 K=7 batch=2 nn float32 lda=8 ldb=9 copy b");
  same(view({{3, 7}, {-7, -1}}, b, {}), "M=3 N=9 K=7 nn float32 lda=7 ldb=9 copy a");

  const GemmView batch = view_gemm({{2, 1, 3, 7}, {24, 0, 8, 1}}, {{5, 7, 9}, {70, 9, 1}}, {});
  const OperandOffsets last = offsets_of_product(batch, 9);
  same(last.a, 24);
  same(last.b, 4 * 70);
  same(last.c, 9 * 3 * 9);
}

// ---- Launch records ----

std::string text(const Extent3& extent) {
  return std::to_string(extent.x) + " " + std::to_string(extent.y) + " " + std::to_string(extent.z);
}

std::string text(const BufferBinding& buffer) {
  std::ostringstream text;
  text << buffer.slot << " " << "abcAB"[int(buffer.operand)] << " +" << buffer.byte_offset << " " << buffer.byte_size
       << (buffer.writable ? " writable" : "");
  return text.str();
}

void check_launches() {
  const Problem problem{.M = 33, .N = 65, .K = 20, .lda = 23, .ldb = 70};
  const LaunchRecord record = plan_launch(kernel("tiled_32k16"), problem, {.a = 5, .b = 7, .c = 11});
  same(record.kernel, "tiled_32k16");
  same(text(record.grid), "3 2 1");
  same(text(record.threads), "32 32 1");
  same(record.buffers.size(), 3);
  same(text(record.buffers[0]), "0 a +20 3024");           // 4 (32 * 23 + 20)
  same(text(record.buffers[1]), "1 b +28 5580");           // 4 (19 * 70 + 65)
  same(text(record.buffers[2]), "2 c +44 8580 writable");  // 4 * 33 * 65
  same(record.params_slot, 3);
  GemmParams params;
  same(record.params.size(), sizeof(params));
  std::memcpy(&params, record.params.data(), sizeof(params));
  same(params.M, 33);
  same(params.N, 65);
  same(params.K, 20);
  same(params.lda, 23);
  same(params.ldb, 70);
  same(params.ldc, 65);
  same(record.constants.size(), 0);

  const auto launch = [](const char* name, int64_t M, int64_t N) {
    const LaunchRecord record = plan_launch(kernel(name), product(M, N, 1024));
    return text(record.grid) + ", " + text(record.threads);
  };
  same(launch("naive", 1, 1), "1 1 1, 32 32 1");
  same(launch("tiled_16", 16, 17), "2 1 1, 16 16 1");
  same(launch("coarse_1d", 65, 64), "1 2 1, 512 1 1");
  same(launch("coarse_2d", 257, 128), "1 3 1, 256 1 1");
  same(launch("simdgroup_8x8", 24, 16), "2 3 1, 32 1 1");
  same(launch("tensorops_64x128", 64, 128), "1 1 1, 128 1 1");
  same(launch("tensorops_64x128", 65, 129), "2 2 1, 128 1 1");
  same(launch("tensorops_32x32_sg1", 128, 32), "1 4 1, 32 1 1");
  same(launch("tensorops_64x64_morton", 65, 129), "6 1 1, 128 1 1");
  same(launch("tensorops_sync_64x64_k256_morton", 128, 128), "4 1 1, 128 1 1");
}

CopyParams copy_params(const LaunchRecord& record) {
  CopyParams params;
  same(record.params.size(), sizeof(params));
  std::memcpy(&params, record.params.data(), sizeof(params));
  return params;
}

std::vector<LaunchRecord> copies(const Strided& layout, int bytes) {
  std::vector<LaunchRecord> launches;
  append_copies({Operand::b, Operand::b_copy, bytes}, layout, launches);
  return launches;
}

void check_copies() {
  const LaunchRecord record = copies({{5, 1, 70, 3, 33}, {1000, 7, -4, 99, 3}}, 4).at(0);
  same(record.kernel, "strided_copy_32");
  same(text(record.buffers[0]), "0 b +-1104 18284");  // from -69 * 4 to 4 * 1000 + 98 * 3
  same(text(record.buffers[1]), "1 B +0 138600 writable");
  same(text(record.grid) + ", " + text(record.threads), "4 44 1, 32 8 1");  // 350 rows of 99
  same(record.params_slot, 2);
  same(record.constants.size(), 1);
  same(record.constants[0].id, 0);
  same(record.constants[0].value, 2);  // 5 and 70
  const CopyParams params = copy_params(record);
  same(params.origin, 276);
  same(params.first_row, 0);

  same(copies({{3, 4}, {5, 1}}, 2).at(0).kernel, "strided_copy_16");
  same(copies({{3, 4}, {5, 1}}, 8).at(0).kernel, "strided_copy_64");

  // 3 2^30 rows are two launches; the largest length of a merged axis stays below 2^31.
  constexpr int k2to30 = 1 << 30;
  const auto tall = copies({{3, k2to30, 2}, {int64_t(1) << 40, 3, 1}}, 2);
  same(tall.size(), 2);
  same(copy_params(tall[0]).first_row, 0);
  same(copy_params(tall[1]).first_row, int64_t(1) << 31);
  same(copy_params(tall[1]).rows, 3 * int64_t(k2to30));
  same(text(tall[0].grid), "1 268435456 1");
  same(text(tall[1].grid), "1 134217728 1");
  same(copies({{2, k2to30}, {k2to30, 1}}, 2).at(0).constants[0].value, 1);
  same(copies({{2, k2to30 - 1}, {k2to30 - 1, 1}}, 2).at(0).constants[0].value, 0);

  const GemmView view =
      view_gemm({{4, 6}, {1, 4}}, {{6, 2}, {2, 1}}, addressing_of(kernel("naive"), Dtype::float32, 6));
  const LaunchSequence sequence = plan_products(kernel("naive"), view);
  same(sequence.scratch.size(), 1);
  same(int(sequence.scratch[0].operand), int(Operand::a_copy));
  same(sequence.scratch[0].bytes, 96);
  same(sequence.products.size(), 1);
  same(text(sequence.products[0].buffers[0]), "0 A +0 96");
  same(text(sequence.products[0].buffers[1]), "1 b +0 48");
}

// ---- Tile order ----

template <TileOrder ORDER, int BM, int BN>
TilePosition tile(uint32_t group, int M, int N) {
  return tile_of<ORDER, BM, BN>(group, 0, M, N);
}

// A 1-D grid over M x N computes every tile once.
template <int BM, int BN>
void check_every_tile(int M, int N) {
  const uint32_t rows = uint32_t(tiles(M, BM));
  const uint32_t columns = uint32_t(tiles(N, BN));
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (uint32_t group = 0; group < rows * columns; ++group) {
    const TilePosition at = tile<TileOrder::morton, BM, BN>(group, M, N);
    same(at.column < columns && at.row < rows, true);
    seen.insert({at.column, at.row});
  }
  same(seen.size(), size_t(rows) * columns);
}

// The grid of a production kernel reaches every tile once.
void check_orders() {
  for (const TileOrder order :
       {TileOrder::row_major, TileOrder::swizzle_1, TileOrder::swizzle_2, TileOrder::swizzle_3, TileOrder::morton}) {
    KernelInfo ordered = kernel("tensorops_gemm_64x64_k256");
    ordered.order = order;
    for (uint32_t rows = 1; rows <= 20; ++rows) {
      for (uint32_t columns = 1; columns <= 20; ++columns) {
        const auto [width, height] = grid_of(ordered, {.M = 64 * rows - 1, .N = 64 * columns - 63, .K = 1});
        std::set<std::pair<uint32_t, uint32_t>> seen;
        int64_t inside = 0;
        for (uint32_t y = 0; y < height; ++y) {
          for (uint32_t x = 0; x < width; ++x) {
            const TilePosition at = ordered_tile(x, y, order, rows, columns);
            if (at.row < rows && at.column < columns) {
              seen.insert({at.column, at.row});
              ++inside;
            }
          }
        }
        same(seen.size(), size_t(rows) * columns);
        same(inside, int64_t(rows) * columns);
      }
    }
  }
  // Four rows of tiles down, then the next column.
  const TilePosition third = ordered_tile(6, 1, TileOrder::swizzle_2, 20, 20);
  same(third.column, 1);
  same(third.row, 6);
}

void check_tile_order() {
  check_orders();
  const TilePosition plain = tile_of<TileOrder::row_major, 64, 32>(5, 9, 1000, 1000);
  same(plain.column, 5);
  same(plain.row, 9);
  // The curve: every other bit of the group is the column, the rest the row.
  for (uint32_t bit = 0; bit < 16; ++bit) {
    same(even_bits(1u << (2 * bit)), 1u << bit);
    same(even_bits(2u << (2 * bit)), 0u);
  }
  same(even_bits(0xffffffffu), 0xffffu);
  const TilePosition turned = tile<TileOrder::morton, 64, 64>(0b100110, 512, 512);
  same(turned.column, 0b010);
  same(turned.row, 0b101);
  // Row by row where the tiles are no square power of two.
  for (const auto& [M, N] : {std::pair(192, 192), std::pair(128, 256), std::pair(129, 100)}) {
    const uint32_t columns = uint32_t(tiles(N, 64));
    const TilePosition next = tile<TileOrder::morton, 64, 64>(columns + 1, M, N);
    same(next.column, 1);
    same(next.row, 1);
  }
  for (const int length : {1, 63, 64, 65, 127, 128, 129, 192, 250, 256, 257, 512}) {
    for (const int width : {1, 64, 65, 128, 129, 256, 320}) {
      check_every_tile<64, 64>(length, width);
      check_every_tile<64, 32>(length, width);
    }
  }
}

}  // namespace

int main() {
  check_shapes();
  check_types_and_layouts();
  check_devices();
  check_sizes();
  check_rows();
  check_requested_bytes();
  check_names();
  check_problems();
  check_routes();
  check_tile_spans();
  check_addends();
  check_limits();
  check_apple_gpus();
  check_layouts();
  check_launches();
  check_copies();
  check_tile_order();
  return report();
}
