// The Metal host runtime's interface: runs kernels compiled from Metal source on this machine's CPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace metal_host {

constexpr int kBufferSlots = 31;

struct Size3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

struct Buffer {
  void* data = nullptr;
  size_t bytes = 0;
  bool writable = false;
  bool constant = false;  // in the constant address space: not counted as device traffic
};

struct Constant {
  int id;
  int64_t value;
};

// Which fibers stand for the threads of a threadgroup.
enum class Mode {
  automatic,  // uniform where the kernel allows it
  lanes,      // one fiber per thread, as on a GPU
  uniform,    // one fiber per SIMD group, for kernels that never ask for a lane
};

struct Dispatch {
  std::string_view kernel;
  Size3 grid;     // threadgroups
  Size3 threads;  // threads per threadgroup
  // Threads of the grid, where the last threadgroups are to be cut to it (dispatchThreads).
  std::optional<Size3> grid_threads;
  std::array<Buffer, kBufferSlots> buffers;
  std::vector<Constant> constants;
  Mode mode = Mode::automatic;
  int workers = 0;               // OS threads over threadgroups; 0 = one per CPU
  std::optional<uint64_t> seed;  // shuffles the order of fibers and threadgroups
  // What Metal's rules forbid but GPUs are known to do as meant becomes a warning: barriers that only some lanes of a
  // SIMD group reach, a static k past the end of the operands, slots of a cooperative tensor used unasked, outputs
  // written twice.
  bool tolerant = false;
};

struct Counters {
  uint64_t threadgroups = 0;
  uint64_t barriers = 0;           // threadgroup barriers, once per threadgroup
  uint64_t multiplies = 0;         // simdgroup_multiply* and matmul2d::run calls
  uint64_t threadgroup_bytes = 0;  // largest threadgroup memory of any threadgroup
  // Counted by the checked module only.
  uint64_t device_read_bytes = 0;
  uint64_t device_write_bytes = 0;
  uint64_t threadgroup_read_bytes = 0;
  uint64_t threadgroup_write_bytes = 0;
};

struct Outcome {
  Counters counters;
  std::set<std::string> warnings;  // of the checked module: legal on paper or in practice, but not both
  std::string fault;               // empty when every threadgroup finished
};

// Kernels and runtime come in two builds: the plain one inside the extension, and the checked one, a shared object
// of its own in which every memory access of a kernel is bounds-checked and counted.
struct Module {
  bool checked;
  bool (*has_kernel)(std::string_view name);
  bool (*allows_uniform)(std::string_view name);
  Outcome (*run)(const Dispatch& dispatch);
};

}  // namespace metal_host

// The module linked into the caller.
extern "C" __attribute__((visibility("default"))) const metal_host::Module* metal_host_module();
