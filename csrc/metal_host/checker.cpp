#include "csrc/metal_host/checker.h"

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstdio>

#include "csrc/metal_host/source_lines.h"

namespace metal_host {

namespace {

bool contains(const void* base, size_t bytes, const void* data) {
  const auto* begin = static_cast<const std::byte*>(base);
  const auto* at = static_cast<const std::byte*>(data);
  return at >= begin && at < begin + bytes;
}

// Accesses are compared in units of the variable's elements, vectors in units of four bytes.
constexpr size_t kMaxGranule = 4;

const char* verb(bool write) { return write ? "write" : "read"; }

// Accesses inside the runtime's own headers have no line of a kernel; the call that they belong to has.
Place place_of(const void* return_address) {
  const Place place = source_place(return_address);
  const Site& site = current_lane()->site;
  return place.file ? place : Place{site.file_name(), site.line()};
}

[[noreturn, gnu::format(printf, 2, 3)]] void fault_at(const void* return_address, const char* format, ...) {
  char message[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  current_lane()->group->fail(place_of(return_address), message);
}

}  // namespace

DeviceShadow::DeviceShadow(const Dispatch& dispatch) {
  for (const Buffer& buffer : dispatch.buffers) {
    if (buffer.data && buffer.writable) {
      const size_t count = (buffer.bytes + kGranule - 1) / kGranule;
      regions_.push_back({static_cast<const std::byte*>(buffer.data), buffer.bytes, std::make_unique<Cell[]>(count)});
    }
  }
}

DeviceShadow::Range DeviceShadow::cells(const void* data, size_t bytes) {
  for (Region& region : regions_) {
    if (contains(region.base, region.bytes, data)) {
      const size_t offset = size_t(static_cast<const std::byte*>(data) - region.base);
      const size_t first = offset / kGranule;
      return {&region.cells[first], (offset + bytes + kGranule - 1) / kGranule - first};
    }
  }
  return {};
}

void Checker::begin_threadgroup() {
  first_ordered_ = ++ordered_;
  device_epoch_ = 0;
  const Size3 at = group_.position();
  const Size3 grid = group_.dispatch().grid;
  threadgroup_ = (uint64_t(at.z) * grid.y + at.y) * grid.x + at.x + 1;
  simdgroup_ordered_.assign(group_.lane_count() / group_.lanes_per_simdgroup(), 0);
  collective_ = nullptr;
}

void Checker::barrier(uint32_t flags) {
  waited_++;
  ordered_ += (flags & kMemoryThreadgroup) != 0;
  device_epoch_ += (flags & kMemoryDevice) != 0;
}

void Checker::simdgroup_barrier(uint32_t simdgroup, uint32_t flags) {
  simdgroup_ordered_[simdgroup] += (flags & kMemoryThreadgroup) != 0;
  // Device memory is tracked less finely: this also forgives what other SIMD groups do at the same time.
  device_epoch_ += (flags & kMemoryDevice) != 0;
}

void Checker::begin_collective(const Rendezvous& scope) { collective_ = &scope; }

Checker::Actor Checker::actor(const Lane& lane) const {
  if (!collective_) {
    return {lane.ids.index, lane.ids.simdgroup};
  }
  const bool whole = collective_->expected == group_.lane_count();
  return {kMaxThreads + (whole ? kMaxThreads : lane.ids.simdgroup), whole ? kManySimdgroups : lane.ids.simdgroup};
}

Checker::Touch Checker::now(const Lane& lane) const {
  const Actor self = actor(lane);
  const uint32_t simdgroup_ordered = self.simdgroup == kManySimdgroups ? 0 : simdgroup_ordered_[self.simdgroup];
  return {ordered_, waited_, simdgroup_ordered, self};
}

bool Checker::ordered(const Touch& before, const Touch& now) {
  const bool same_simdgroup = before.actor.simdgroup == now.actor.simdgroup && now.actor.simdgroup != kManySimdgroups;
  return before.ordered != now.ordered || before.actor.id == now.actor.id ||
         (same_simdgroup && before.simdgroup_ordered != now.simdgroup_ordered);
}

// Whether every read that the cell remembers is ordered before `now`.
bool Checker::read_is_over(const Cell& cell, const Touch& now) {
  switch (cell.readers) {
    case Readers::one_thread:
      return ordered(cell.read, now);
    case Readers::one_simdgroup: {
      const bool barrier = cell.read.simdgroup_ordered != now.simdgroup_ordered;
      return cell.read.ordered != now.ordered || (cell.read.actor.simdgroup == now.actor.simdgroup && barrier);
    }
    case Readers::many:
      return cell.read.ordered != now.ordered;
  }
  return false;
}

void Checker::note_read(Cell& cell, const Touch& now) {
  if (cell.read.actor.id != now.actor.id) {
    cell.reader = cell.read.actor.id;
  }
  const bool same_thread = cell.readers == Readers::one_thread && cell.read.actor.id == now.actor.id;
  if (same_thread || read_is_over(cell, now)) {
    cell.readers = Readers::one_thread;
  } else if (cell.readers != Readers::many && cell.read.actor.simdgroup == now.actor.simdgroup) {
    cell.readers = Readers::one_simdgroup;
  } else {
    cell.readers = Readers::many;
  }
  cell.read = now;
}

void Checker::access(const void* data, size_t bytes, bool write, const void* return_address) {
  Lane& lane = *current_lane();
  if (contains(lane.stack.base, lane.stack.bytes, data)) {
    return;
  }
  Counters& counters = group_.counters();
  const Located at = group_.locate(data, bytes, write);
  switch (at.location) {
    case Location::device:
      (write ? counters.device_write_bytes : counters.device_read_bytes) += bytes;
      touch_device(lane, data, bytes, write, return_address);
      break;
    case Location::threadgroup:
      (write ? counters.threadgroup_write_bytes : counters.threadgroup_read_bytes) += bytes;
      for (size_t i = 0; i < bytes; i += std::min<size_t>(at.element_bytes, kMaxGranule)) {
        touch_threadgroup(lane, at.offset + i, write, return_address);
      }
      break;
    case Location::uncounted:
      break;
    case Location::read_only:
      fault_at(return_address, "write of %zu bytes to a read-only buffer", bytes);
    case Location::outside:
      if (!in_own_image(data)) {  // constant tables of the kernels
        report_outside(data, bytes, write, return_address);
      }
  }
}

void Checker::touch_threadgroup(const Lane& lane, size_t offset, bool write, const void* return_address) {
  Cell& cell = cells_[offset];
  const Touch self = now(lane);
  const bool written = cell.write.ordered >= first_ordered_;
  if (!write && !written) {
    fault_at(return_address, "read of threadgroup memory that nobody has written (byte %zu)", offset);
  }
  if (written && !ordered(cell.write, self)) {
    fault_at(return_address,
             "race on threadgroup memory: %s by thread %u, written by thread %u with no barrier between", verb(write),
             self.actor.id, cell.write.actor.id);
  }
  if (!write) {
    note_read(cell, self);
    return;
  }
  if (!read_is_over(cell, self)) {
    if (cell.read.waited == self.waited) {
      fault_at(return_address,
               "race on threadgroup memory: write by thread %u, read by thread %u with no barrier between",
               self.actor.id, cell.read.actor.id == self.actor.id ? cell.reader : cell.read.actor.id);
    }
    group_.warn(place_of(return_address), "write to threadgroup memory that only a mem_none barrier parts from a read");
  }
  cell.write = self;
}

void Checker::touch_device(const Lane& lane, const void* data, size_t bytes, bool write, const void* return_address) {
  const DeviceShadow::Range range = device_.cells(data, bytes);
  const uint32_t self_actor = actor(lane).id;
  const DeviceShadow::Touch self{threadgroup_, self_actor, device_epoch_};
  for (size_t i = 0; i < range.count; ++i) {
    const uint64_t old = write ? range.first[i].exchange(std::bit_cast<uint64_t>(self), std::memory_order_relaxed)
                               : range.first[i].load(std::memory_order_relaxed);
    const auto before = std::bit_cast<DeviceShadow::Touch>(old);
    if (before.threadgroup == 0) {
      continue;
    }
    const bool ordered = before.actor == self_actor || before.epoch != device_epoch_;
    if (before.threadgroup == threadgroup_ && ordered) {
      continue;
    }
    if (write && group_.dispatch().tolerant) {
      // Kernels move blocks at the edge inwards, and write the same values once more.
      group_.warn(place_of(return_address), "device memory that another thread has written is written again");
      continue;
    }
    if (before.threadgroup != threadgroup_) {
      fault_at(return_address, "race on device memory: %s by this threadgroup, written by threadgroup %llu",
               verb(write), (unsigned long long)before.threadgroup - 1);
    }
    fault_at(return_address, "race on device memory: %s by thread %u, written by thread %u with no barrier between",
             verb(write), self_actor, unsigned(before.actor));
  }
}

void Checker::report_outside(const void* data, size_t bytes, bool write, const void* return_address) {
  if (group_.in_arena(data)) {
    fault_at(return_address, "%s of %zu bytes of threadgroup memory outside every variable", verb(write), bytes);
  }
  if (const int slot = unbound_slot(data); slot >= 0) {
    fault_at(return_address, "%s of %zu bytes, but nothing is bound to buffer(%d)", verb(write), bytes, slot);
  }
  const Nearest near = group_.nearest(data);
  if (near.slot < 0) {
    fault_at(return_address, "%s of %zu bytes outside every buffer, threadgroup variable and this thread's stack",
             verb(write), bytes);
  }
  fault_at(return_address, "%s of %zu bytes out of bounds, %td bytes %s buffer(%d)", verb(write), bytes, near.bytes,
           near.where, near.slot);
}

}  // namespace metal_host
