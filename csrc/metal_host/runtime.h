// What the Metal headers under include/ call: the state of the running thread, collectives and faults.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "csrc/metal_host/host.h"

namespace metal_host {

// A place in the Metal source; the translator's #line directives make it name the .metal file.
using Site = std::source_location;

// Ends the threadgroup: the dispatch reports the message with the site and the running thread.
[[noreturn, gnu::format(printf, 2, 3)]] void fault(Site site, const char* format, ...);

// ---- The running thread ----

struct ThreadIds {
  Size3 threadgroup_position;
  Size3 threadgroups;
  Size3 threads;
  Size3 position;  // in the threadgroup
  uint32_t index;  // in the threadgroup
  uint32_t lane;   // 0 in uniform mode, where one fiber is the whole SIMD group
  uint32_t simdgroup;
};
// Returned by value: instrumented code may read its own stack, but not the runtime's memory.
ThreadIds thread_ids();
uint32_t lane_index();

// Address bound to a buffer slot. Where nothing is, a checked dispatch faults at the first access, any other here.
void* bound_buffer(int slot);
// What stands for an argument whose function constant is false: zeros that nobody may write.
void* absent_argument();
int64_t function_constant(int id, bool* defined);

// max_total_threads_per_threadgroup: faults in a larger threadgroup.
void limit_threads(uint32_t limit, Site site = Site::current());

// Storage of a threadgroup variable: one object per declaration, filled with NaN when the threadgroup starts.
struct VariableDeclaration {
  const void* key;  // the same in every thread, different for every declaration
  size_t bytes;
  size_t element_bytes;
};
void* threadgroup_variable(const VariableDeclaration& declaration, Site site);

// Memory that a GPU leaves uninitialised is filled with this byte. Repeated, it is a NaN in every floating-point format
// that no arithmetic produces.
constexpr int kUnwritten = 0xff;

template <class T>
bool is_unwritten(const T& value) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4);
  std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t> bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits == decltype(bits)(~decltype(bits)(0));
}

// ---- Collectives ----

enum MemoryFlags : uint32_t { kMemoryNone = 0, kMemoryDevice = 1, kMemoryThreadgroup = 2 };

void threadgroup_barrier(uint32_t flags, Site site);
void simdgroup_barrier(uint32_t flags, Site site);

// Collects `bytes` of every lane of the SIMD group in `all`, which has room for 32 lanes, and returns the mask of those
// that took part: lanes that have left the kernel are not waited for.
uint32_t gather_lanes(const void* own, size_t bytes, void* all, Site site);

// Notes a call that every lane of the SIMD group must make with the same arguments (hashed into `arguments`).
// Checked when the lanes next meet.
void note_uniform_call(uint64_t arguments, Site site);

enum class Element : uint32_t { float32, float16, bfloat16 };

// D = A B (+ C) on 8x8 matrices. The pointers are the caller's own elements: two per lane, or all 64 in uniform mode.
struct Multiply8x8 {
  Element left;
  Element right;
  Element accumulator;
  const void* a;
  const void* b;
  const void* c;  // nullptr for a plain product
  void* d;
};
void multiply_8x8(const Multiply8x8& call, Site site);

// A rank-2 tensor as matmul2d sees it. Dimension 0 is contiguous.
struct TensorView {
  void* data;
  Element element;
  int32_t extent[2];
  int64_t stride;        // of dimension 1, in elements
  uint32_t cooperative;  // a tile of the scope, not memory
};

struct MatmulCall {
  int32_t m;
  int32_t n;
  int32_t k;  // -1: the operands' extent
  uint32_t simdgroups;
  uint32_t transpose_left;
  uint32_t transpose_right;
  uint32_t relaxed;
  uint32_t accumulate;
  TensorView left;
  TensorView right;
  TensorView destination;
};
void matmul2d(const MatmulCall& call, Site site);

// Storage of a cooperative tensor: one tile for all threads of the scope, NaN-filled when the first of them opens it.
struct Tile {
  void* data;
  uint32_t thread;       // of the caller in the scope
  uint32_t threads;      // in the scope
  uint32_t spare_slots;  // more than needed, so that a loop without is_valid_element shows
};
Tile open_tile(uint32_t simdgroups, size_t bytes, Site site);
void close_tile(void* data);

// ---- Registration of translated kernels ----

struct KernelEntry {
  const char* name;
  uint32_t lanes;  // 32, or 1 for the uniform build
  void (*body)();
  Site site;
};

struct KernelRegistration {
  explicit KernelRegistration(const KernelEntry& entry);
};

}  // namespace metal_host
