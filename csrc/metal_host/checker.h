// Watches every memory access of a checked dispatch: bounds, traffic, races and reads of memory that nobody wrote.
//
// Accesses are ordered by barriers alone. A threadgroup barrier orders threadgroup memory with mem_threadgroup and
// device memory with mem_device; a SIMD-group barrier does so within its SIMD group; mem_none makes threads wait but
// orders nothing. Threadgroups are never ordered.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/metal_host/threadgroup.h"

namespace metal_host {

// Last touch of each element of the writable buffers, shared by all threadgroups of a dispatch.
class DeviceShadow {
 public:
  explicit DeviceShadow(const Dispatch& dispatch);

  // Who touched an element last: a threadgroup, one of its actors, and the number of device barriers before that.
  struct Touch {
    uint64_t threadgroup : 28;  // its index in the grid + 1; 0: nobody
    uint64_t actor : 12;
    uint64_t epoch : 24;
  };
  using Cell = std::atomic<uint64_t>;

  // The cells of [data, data + bytes), or nothing when no writable buffer holds them.
  struct Range {
    Cell* first = nullptr;
    size_t count = 0;
  };
  Range cells(const void* data, size_t bytes);

 private:
  static constexpr size_t kGranule = 2;  // bytes: half is the smallest element that kernels write
  struct Region {
    const std::byte* base;
    size_t bytes;
    std::unique_ptr<Cell[]> cells;
  };
  std::vector<Region> regions_;
};

class Checker {
 public:
  Checker(Threadgroup& group, DeviceShadow& device) : group_(group), device_(device), cells_(kMaxThreadgroupBytes) {}

  void begin_threadgroup();
  void barrier(uint32_t flags);
  void simdgroup_barrier(uint32_t simdgroup, uint32_t flags);

  // Access by the running lane. `return_address` lies in the code that made it, for the message.
  void access(const void* data, size_t bytes, bool write, const void* return_address);

  // While a matmul2d is computed, accesses are those of all its threads together.
  void begin_collective(const Rendezvous& scope);
  void end_collective() { collective_ = nullptr; }

 private:
  // A thread, or all threads of a SIMD group or of the threadgroup acting together in a collective.
  struct Actor {
    uint32_t id;
    uint32_t simdgroup;  // kManySimdgroups for the whole threadgroup
  };
  static constexpr uint32_t kManySimdgroups = ~0u;

  // When an access happened, in barriers passed.
  struct Touch {
    uint32_t ordered = 0;  // threadgroup barriers that ordered threadgroup memory; grows over threadgroups
    uint32_t waited = 0;   // threadgroup barriers of any kind
    uint32_t simdgroup_ordered = 0;
    Actor actor{};
  };
  // Since the last barrier that ordered them, an element was read by one thread, by one SIMD group or by several.
  enum class Readers : uint8_t { one_thread, one_simdgroup, many };
  struct Cell {
    Touch write;
    Touch read;           // the last one
    uint32_t reader = 0;  // the one before it, if that was another thread
    Readers readers = Readers::one_thread;
  };

  Actor actor(const Lane& lane) const;
  Touch now(const Lane& lane) const;
  static bool ordered(const Touch& before, const Touch& now);
  static bool read_is_over(const Cell& cell, const Touch& now);
  static void note_read(Cell& cell, const Touch& now);
  void touch_threadgroup(const Lane& lane, size_t offset, bool write, const void* return_address);
  void touch_device(const Lane& lane, const void* data, size_t bytes, bool write, const void* return_address);
  [[noreturn]] void report_outside(const void* data, size_t bytes, bool write, const void* return_address);

  Threadgroup& group_;
  DeviceShadow& device_;
  std::vector<Cell> cells_;
  uint32_t first_ordered_ = 0;  // `ordered` when the threadgroup began
  uint32_t ordered_ = 0;
  uint32_t waited_ = 0;
  uint32_t device_epoch_ = 0;
  uint64_t threadgroup_ = 0;
  std::vector<uint32_t> simdgroup_ordered_;
  const Rendezvous* collective_ = nullptr;
};

}  // namespace metal_host
