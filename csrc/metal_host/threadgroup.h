// One threadgroup in execution: its fibers, run queue, rendezvous points and memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "csrc/metal_host/fiber.h"
#include "csrc/metal_host/host.h"
#include "csrc/metal_host/multiply_tile.h"
#include "csrc/metal_host/runtime.h"
#include "csrc/metal_host/source_lines.h"

namespace metal_host {

constexpr uint32_t kSimdWidth = 32;
constexpr uint32_t kMaxThreads = 1024;             // per threadgroup; Metal feature set tables
constexpr size_t kMaxThreadgroupBytes = 32 << 10;  // likewise
constexpr size_t kMaxGatherBytes = 16;             // of one lane: a vector of four floats

enum class Collective : uint8_t { none, threadgroup_barrier, simdgroup_barrier, gather, multiply_8x8, matmul2d };
const char* to_string(Collective collective);

// What an address belongs to. Cooperative tiles and constant buffers are not counted as traffic.
enum class Location { device, threadgroup, uncounted, read_only, outside };

struct Located {
  Location location = Location::outside;
  size_t offset = 0;         // in threadgroup memory
  size_t element_bytes = 0;  // of the threadgroup variable
};

// The buffer slot close to a stray address, or -1.
struct Nearest {
  int slot = -1;
  ptrdiff_t bytes = 0;
  const char* where = "";
};

class Checker;
class Threadgroup;

struct GatherCall {
  const void* own;
  size_t bytes;
  void* all;
  uint32_t active = 0;  // mask of the lanes that took part
};

struct Lane {
  Context context;
  ThreadIds ids;
  Threadgroup* group = nullptr;
  Stack stack;
  uint64_t history = 0;  // hash of the uniform calls since the lanes of the SIMD group last met
  uint32_t tiles = 0;    // cooperative tensors opened so far
  Collective waiting = Collective::none;
  Site site;             // of the last collective or uniform call
  void* call = nullptr;  // arguments deposited at a rendezvous
  bool done = false;
  bool absent = false;  // beyond the edge of the grid: never started
};

// The slot that an address stands for to which nothing is bound, or -1.
int unbound_slot(const void* data);

// The thread that is running on this OS thread, or nullptr.
Lane* current_lane();

// A point where `expected` lanes, from `first` on, must all arrive before any goes on.
struct Rendezvous {
  uint32_t first = 0;
  uint32_t expected = 0;
  uint32_t arrived = 0;
  uint32_t absent = 0;  // of the expected ones
  uint32_t live = 0;    // lanes that have not left the kernel; kept for SIMD groups
  Collective collective = Collective::none;
  uint64_t arguments = 0;
  Site site;
};

class Threadgroup {
 public:
  Threadgroup(const Dispatch& dispatch, const KernelEntry& kernel);
  ~Threadgroup();
  Threadgroup(const Threadgroup&) = delete;
  Threadgroup& operator=(const Threadgroup&) = delete;

  // Runs the threadgroup at `position`. False after a fault, which fault_message() then describes.
  bool run(Size3 position);

  const std::string& fault_message() const { return fault_message_; }
  const std::set<std::string>& warnings() const { return warnings_; }
  Size3 position() const { return lanes_[0].ids.threadgroup_position; }
  // Watches the accesses of a checked dispatch, else nullptr.
  Checker* checker() const { return checker_; }
  void set_checker(Checker* checker) { checker_ = checker; }
  const Counters& counters() const { return counters_; }
  Counters& counters() { return counters_; }
  const Dispatch& dispatch() const { return dispatch_; }
  PackedOperands& packed_operands() { return packed_operands_; }
  bool uniform() const { return kernel_.lanes == 1; }
  uint32_t lanes_per_simdgroup() const { return kernel_.lanes; }
  Lane& lane(uint32_t index) { return lanes_[index]; }
  uint32_t lane_count() const { return uint32_t(lanes_.size()); }

  // ---- Called by the running lane ----

  // Waits until all lanes of the rendezvous are there; the last to arrive executes `complete` for all of them.
  template <class Complete>
  void meet(Rendezvous& point, Collective collective, uint64_t arguments, Site site, Complete complete) {
    if (!arrive(point, collective, arguments, site)) {
      run_next();
      return;
    }
    complete();
    release(point);
  }

  Rendezvous& whole_threadgroup() { return barrier_; }
  Rendezvous& simdgroup_of(const Lane& lane) { return simdgroups_[lane.ids.simdgroup]; }
  // Lanes of one SIMD group must have made the same uniform calls since they last met.
  void check_histories(uint32_t first, uint32_t count, Site site);
  void complete_barrier(uint32_t flags);
  uint32_t gather_lanes(GatherCall& call, Site site);

  void* variable(const VariableDeclaration& declaration, Site site);
  Tile open_tile(uint32_t simdgroups, size_t bytes, Site site);
  void close_tile(void* data);
  // Whether a matmul2d has written all of a cooperative tensor, so that nobody need look for elements that are missing.
  bool tile_is_written(const void* data);
  void tile_was_written(const void* data);

  Located locate(const void* data, size_t bytes, bool write) const;
  bool in_arena(const void* data) const { return data >= arena_->bytes && data < arena_->bytes + sizeof arena_->bytes; }
  // Whether a kernel may access [data, data + bytes), which must lie inside one buffer or threadgroup variable.
  bool may_access(const void* data, size_t bytes, bool write) const;
  // Whether nothing can write [data, data + bytes) before the dispatch ends.
  bool is_constant(const void* data, size_t bytes) const;
  Nearest nearest(const void* data) const;

  [[noreturn]] void fail(Place place, const char* message);
  void warn(Place place, const char* message);
  // A fault, or a warning where the dispatch is tolerant.
  void complain(Site site, const char* message);
  // The life of a lane, from start to exit.
  void run_lane();

 private:
  struct Arena {
    alignas(64) std::byte bytes[kMaxThreadgroupBytes];
  };
  struct Variable {
    const void* declaration;
    size_t offset;
    size_t bytes;
    size_t element_bytes;
  };
  // Cooperative storage is found by the scope and the order of opening, the same in every thread of the scope.
  struct OpenTile {
    uint32_t scope;  // SIMD group, or kWholeThreadgroup
    uint32_t sequence;
    uint32_t closed;
    size_t bytes;
    AlignedBytes data;
    bool written = false;  // whole, by a matmul2d
  };
  static constexpr uint32_t kWholeThreadgroup = ~0u;

  std::vector<OpenTile>::iterator tile_at(const void* data);
  std::string located(Place place, const char* message) const;
  void start(Lane& lane, Size3 position);
  bool outside_grid(const Lane& lane, Size3 position) const;
  bool arrive(Rendezvous& point, Collective collective, uint64_t arguments, Site site);
  void complete_gather(Rendezvous& simdgroup, Site site);
  void check_exit(const Rendezvous& simdgroup);
  void release(Rendezvous& point);
  void make_ready(uint32_t lane);
  void run_next();
  void switch_to(Lane& next);
  void enter_first();
  bool release_part_of_barrier();
  [[noreturn]] void report_deadlock();

  const Dispatch& dispatch_;
  std::vector<Buffer> bound_;  // the slots of the dispatch that are in use
  const KernelEntry& kernel_;
  std::unique_ptr<StackPool> stacks_;
  std::vector<Lane> lanes_;
  std::vector<Rendezvous> simdgroups_;
  Rendezvous barrier_;
  std::vector<uint32_t> ready_;  // ring buffer of lane indices
  uint32_t ready_head_ = 0;
  uint32_t ready_count_ = 0;
  std::mt19937_64 shuffle_;
  Lane* running_ = nullptr;
  Context scheduler_;
  uint32_t live_ = 0;
  std::unique_ptr<Arena> arena_;
  size_t arena_used_ = 0;
  std::vector<Variable> variables_;
  std::vector<OpenTile> tiles_;
  Counters counters_;
  PackedOperands packed_operands_;  // of the threadgroups that this object has run
  std::string fault_message_;
  std::set<std::string> warnings_;
  Checker* checker_ = nullptr;
};

}  // namespace metal_host
