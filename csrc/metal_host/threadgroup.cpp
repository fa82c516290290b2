#include "csrc/metal_host/threadgroup.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "csrc/metal_host/checker.h"

namespace metal_host {

namespace {

// Fibers never move between OS threads, so this stays valid across a switch.
thread_local Lane* running_lane __attribute__((tls_model("initial-exec"))) = nullptr;

constexpr size_t kVariableAlignment = 16;
constexpr size_t kMessageBytes = 1024;

constexpr size_t kAbsentBytes = 4096;  // of the largest argument that a kernel looks at although it is absent
alignas(64) const std::byte kAbsentArgument[kAbsentBytes] = {};

bool same_place(const Site& a, const Site& b) {
  const bool same_file = a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0;
  return same_file && a.line() == b.line() && a.column() == b.column();
}

uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x9E3779B97F4A7C15ull; }

void fiber_entry() {
  begin_fiber();
  running_lane->group->run_lane();
  __builtin_unreachable();
}

}  // namespace

const char* to_string(Collective collective) {
  switch (collective) {
    case Collective::none:
      return "no collective";
    case Collective::threadgroup_barrier:
      return "threadgroup_barrier";
    case Collective::simdgroup_barrier:
      return "simdgroup_barrier";
    case Collective::gather:
      return "a simd_ function";
    case Collective::multiply_8x8:
      return "simdgroup_multiply";
    case Collective::matmul2d:
      return "matmul2d::run";
  }
  return "?";
}

Lane* current_lane() { return running_lane; }

Threadgroup::Threadgroup(const Dispatch& dispatch, const KernelEntry& kernel)
    : dispatch_(dispatch), kernel_(kernel), shuffle_(dispatch.seed.value_or(0)) {
  std::copy_if(dispatch.buffers.begin(), dispatch.buffers.end(), std::back_inserter(bound_),
               [](const Buffer& buffer) { return buffer.data != nullptr; });
  const Size3 shape = dispatch.threads;
  const uint32_t threads = shape.x * shape.y * shape.z;
  const uint32_t width = lanes_per_simdgroup();
  const uint32_t simdgroups = threads / kSimdWidth;
  lanes_.resize(simdgroups * width);
  simdgroups_.resize(simdgroups);
  stacks_ = StackPool::acquire(lanes_.size());
  ready_.resize(lanes_.size());
  arena_ = std::make_unique_for_overwrite<Arena>();

  barrier_.expected = lane_count();
  for (uint32_t i = 0; i < simdgroups; ++i) {
    simdgroups_[i].first = i * width;
    simdgroups_[i].expected = width;
  }
  for (uint32_t i = 0; i < lane_count(); ++i) {
    Lane& lane = lanes_[i];
    const uint32_t thread = i * kSimdWidth / width;
    lane.group = this;
    lane.stack = (*stacks_)[i];
    lane.ids.threadgroups = dispatch.grid;
    lane.ids.threads = shape;
    lane.ids.position = {thread % shape.x, thread / shape.x % shape.y, thread / shape.x / shape.y};
    lane.ids.index = thread;
    lane.ids.lane = i % width;
    lane.ids.simdgroup = i / width;
  }
}

Threadgroup::~Threadgroup() { StackPool::release(std::move(stacks_)); }

void Threadgroup::start(Lane& lane, Size3 position) {
  lane.ids.threadgroup_position = position;
  lane.history = 0;
  lane.tiles = 0;
  lane.waiting = Collective::none;
  lane.site = {};
  lane.absent = lane.done = outside_grid(lane, position);
  if (lane.absent) {
    Rendezvous& simdgroup = simdgroup_of(lane);
    simdgroup.absent++;
    simdgroup.live--;
    barrier_.absent++;
    live_--;
    return;
  }
  prepare(lane.context, lane.stack, fiber_entry);
  make_ready(uint32_t(&lane - lanes_.data()));
}

bool Threadgroup::outside_grid(const Lane& lane, Size3 position) const {
  if (!dispatch_.grid_threads) {
    return false;
  }
  const Size3 grid = *dispatch_.grid_threads;
  const Size3 shape = dispatch_.threads;
  const Size3 at = lane.ids.position;
  return position.x * shape.x + at.x >= grid.x || position.y * shape.y + at.y >= grid.y ||
         position.z * shape.z + at.z >= grid.z;
}

bool Threadgroup::run(Size3 position) {
  ready_head_ = ready_count_ = 0;
  barrier_.arrived = barrier_.absent = 0;
  for (Rendezvous& point : simdgroups_) {
    point.arrived = point.absent = 0;
    point.live = point.expected;
  }
  std::memset(arena_->bytes, kUnwritten, arena_used_);
  tiles_.clear();
  live_ = lane_count();
  for (Lane& lane : lanes_) {
    start(lane, position);
  }
  if (checker_) {
    checker_->begin_threadgroup();
  }
  enter_first();
  counters_.threadgroups++;
  counters_.threadgroup_bytes = std::max<uint64_t>(counters_.threadgroup_bytes, arena_used_);
  return fault_message_.empty();
}

// ---- Scheduling ----

void Threadgroup::make_ready(uint32_t lane) {
  const uint32_t size = lane_count();
  ready_[(ready_head_ + ready_count_) % size] = lane;
  ready_count_++;
}

// From the scheduler into the first ready lane; returns when all lanes are done or one has failed.
void Threadgroup::enter_first() {
  Lane& first = lanes_[ready_[ready_head_]];
  ready_head_ = (ready_head_ + 1) % lane_count();
  ready_count_--;
  running_ = running_lane = &first;
  switch_context(scheduler_, first.context);
  running_ = running_lane = nullptr;
}

void Threadgroup::switch_to(Lane& next) {
  Lane& self = *running_;
  running_ = running_lane = &next;
  switch_context(self.context, next.context, self.done);
}

void Threadgroup::run_next() {
  if (ready_count_ == 0 && !(dispatch_.tolerant && release_part_of_barrier())) {
    report_deadlock();
  }
  const uint32_t size = lane_count();
  if (dispatch_.seed) {
    const uint32_t pick = uint32_t(shuffle_() % ready_count_);
    std::swap(ready_[ready_head_], ready_[(ready_head_ + pick) % size]);
  }
  Lane& next = lanes_[ready_[ready_head_]];
  ready_head_ = (ready_head_ + 1) % size;
  ready_count_--;
  if (&next != running_) {
    switch_to(next);
  }
}

void Threadgroup::run_lane() {
  kernel_.body();
  Lane& self = *running_;
  self.done = true;
  self.waiting = Collective::none;
  live_--;
  Rendezvous& simdgroup = simdgroup_of(self);
  if (--simdgroup.live == 0) {
    check_exit(simdgroup);
  } else if (simdgroup.arrived == simdgroup.live && simdgroup.collective == Collective::gather) {
    complete_gather(simdgroup, simdgroup.site);  // the others waited for this lane
    release(simdgroup);
  }
  if (live_ == 0) {
    switch_context(self.context, scheduler_, true);
  }
  run_next();
}

// ---- Rendezvous ----

bool Threadgroup::arrive(Rendezvous& point, Collective collective, uint64_t arguments, Site site) {
  Lane& self = *running_;
  if (point.arrived == 0) {
    point.collective = collective;
    point.arguments = arguments;
    point.site = site;
  } else if (point.collective != collective || point.arguments != arguments) {
    fault(site, "divergence: this thread is at %s, others of its group are at %s (%s:%u)%s", to_string(collective),
          to_string(point.collective), point.site.file_name(), point.site.line(),
          point.collective == collective ? " with other arguments" : "");
  }
  self.waiting = collective;
  self.site = site;
  return ++point.arrived + point.absent == point.expected;
}

void Threadgroup::release(Rendezvous& point) {
  point.arrived = 0;
  for (uint32_t i = point.first; i < point.first + point.expected; ++i) {
    lanes_[i].waiting = Collective::none;
    lanes_[i].history = 0;
    if (&lanes_[i] != running_ && !lanes_[i].done) {
      make_ready(i);
    }
  }
}

void Threadgroup::check_histories(uint32_t first, uint32_t count, Site site) {
  const uint32_t width = lanes_per_simdgroup();
  for (uint32_t i = first; i < first + count; ++i) {
    uint32_t leading = i / width * width;
    while (lanes_[leading].done) {
      ++leading;
    }
    const Lane& leader = lanes_[leading];
    if (lanes_[i].done) {
      continue;
    }
    if (lanes_[i].history != leader.history || !same_place(lanes_[i].site, leader.site)) {
      const Site& own = lanes_[i].site;
      fault(site, "divergence: lanes %u and %u of SIMD group %u made different SIMD-group calls (%s:%u and %s:%u)",
            leading % width, i % width, i / width, leader.site.file_name(), leader.site.line(), own.file_name(),
            own.line());
    }
  }
}

// Lanes that leave early make no more calls, but none since the last meeting that the others did not make too.
void Threadgroup::check_exit(const Rendezvous& simdgroup) {
  const Lane* leader = nullptr;
  for (uint32_t i = simdgroup.first; i < simdgroup.first + simdgroup.expected; ++i) {
    const Lane& lane = lanes_[i];
    if (lane.absent) {
      continue;
    }
    leader = leader ? leader : &lane;
    if (lane.history != leader->history) {
      fault(lane.site, "divergence: lanes %u and %u of SIMD group %u made different SIMD-group calls before they left",
            leader->ids.lane, lane.ids.lane, lane.ids.simdgroup);
    }
  }
}

void Threadgroup::complete_barrier(uint32_t flags) {
  counters_.barriers++;
  if (checker_) {
    checker_->barrier(flags);
  }
}

// On a GPU a SIMD group arrives at a barrier when those of its lanes do that are on this path.
bool Threadgroup::release_part_of_barrier() {
  for (const Rendezvous& simdgroup : simdgroups_) {
    bool arrived = simdgroup.live == 0;
    for (uint32_t i = simdgroup.first; i < simdgroup.first + simdgroup.expected; ++i) {
      arrived = arrived || lanes_[i].waiting == Collective::threadgroup_barrier;
    }
    if (!arrived) {
      return false;
    }
  }
  warn({barrier_.site.file_name(), barrier_.site.line()},
       "threadgroup_barrier that only some lanes of a SIMD group reach");
  complete_barrier(uint32_t(barrier_.arguments));
  barrier_.arrived = 0;
  for (uint32_t i = 0; i < lane_count(); ++i) {
    if (lanes_[i].waiting == Collective::threadgroup_barrier) {
      lanes_[i].waiting = Collective::none;
      make_ready(i);
    }
  }
  return true;
}

void Threadgroup::report_deadlock() {
  const Lane* blocked = nullptr;
  const Lane* other = nullptr;
  uint32_t at_first = 0;
  for (const Lane& lane : lanes_) {
    if (!blocked && !lane.done) {
      blocked = &lane;
    }
    const bool together = blocked && lane.waiting == blocked->waiting && same_place(lane.site, blocked->site);
    at_first += together;
    if (!together && !other) {
      other = &lane;
    }
  }
  if (!other) {
    other = blocked;
  }
  if (other->done) {
    fault(blocked->site, "divergence: %u of %u threads wait at %s, others have left the kernel", at_first, lane_count(),
          to_string(blocked->waiting));
  }
  fault(blocked->site, "divergence: %u of %u threads wait at %s, others are at %s (%s:%u)", at_first, lane_count(),
        to_string(blocked->waiting), to_string(other->waiting), other->site.file_name(), other->site.line());
}

uint32_t Threadgroup::gather_lanes(GatherCall& call, Site site) {
  Rendezvous& simdgroup = simdgroup_of(*running_);
  running_->call = &call;
  arrive(simdgroup, Collective::gather, call.bytes, site);
  if (simdgroup.arrived == simdgroup.live) {
    complete_gather(simdgroup, site);
    release(simdgroup);
  } else {
    run_next();
  }
  return call.active;
}

// Hands the values of all lanes that wait to each of them.
void Threadgroup::complete_gather(Rendezvous& simdgroup, Site site) {
  check_histories(simdgroup.first, simdgroup.expected, site);
  std::byte values[kSimdWidth * kMaxGatherBytes];
  std::memset(values, kUnwritten, sizeof values);
  uint32_t active = 0;
  size_t bytes = 0;
  for (uint32_t i = 0; i < simdgroup.expected; ++i) {
    const Lane& lane = lanes_[simdgroup.first + i];
    if (!lane.done) {
      const auto& call = *static_cast<const GatherCall*>(lane.call);
      bytes = call.bytes;
      std::memcpy(values + i * bytes, call.own, bytes);
      active |= 1u << i;
    }
  }
  for (uint32_t i = 0; i < simdgroup.expected; ++i) {
    const Lane& lane = lanes_[simdgroup.first + i];
    if (!lane.done) {
      auto& call = *static_cast<GatherCall*>(lane.call);
      std::memcpy(call.all, values, kSimdWidth * bytes);
      call.active = active;
    }
  }
}

// ---- Memory ----

void* Threadgroup::variable(const VariableDeclaration& declaration, Site site) {
  for (const Variable& variable : variables_) {
    if (variable.declaration == declaration.key) {
      return arena_->bytes + variable.offset;
    }
  }
  const size_t offset = (arena_used_ + kVariableAlignment - 1) / kVariableAlignment * kVariableAlignment;
  if (offset + declaration.bytes > kMaxThreadgroupBytes) {
    fault(site, "threadgroup memory: %zu bytes in use and %zu more asked for, the limit is %zu", arena_used_,
          declaration.bytes, kMaxThreadgroupBytes);
  }
  variables_.push_back({declaration.key, offset, declaration.bytes, declaration.element_bytes});
  arena_used_ = offset + declaration.bytes;
  std::memset(arena_->bytes + offset, kUnwritten, declaration.bytes);
  return arena_->bytes + offset;
}

Tile Threadgroup::open_tile(uint32_t simdgroups, size_t bytes, Site site) {
  Lane& self = *running_;
  const uint32_t width = lanes_per_simdgroup();
  const bool whole = simdgroups > 1;
  if (whole && simdgroups != simdgroups_.size()) {
    fault(site, "execution_simdgroups<%u> in a threadgroup of %zu SIMD groups", simdgroups, simdgroups_.size());
  }
  const uint32_t scope = whole ? kWholeThreadgroup : self.ids.simdgroup;
  const uint32_t threads = simdgroups * width;
  const uint32_t thread = whole ? uint32_t(&self - lanes_.data()) : self.ids.lane;
  const uint32_t sequence = self.tiles++;
  const uint32_t spare_slots = uniform() || dispatch_.tolerant ? 0 : 1;
  note_uniform_call(bytes, site);
  // The other threads of the scope ran just before this one, so its tile is one of the last.
  const auto found = std::find_if(tiles_.rbegin(), tiles_.rend(), [&](const OpenTile& tile) {
    return tile.scope == scope && tile.sequence == sequence;
  });
  if (found != tiles_.rend()) {
    if (found->bytes != bytes) {
      fault(site, "divergence: threads of one scope made different cooperative tensors");
    }
    return {found->data.get(), thread, threads, spare_slots};
  }
  auto data = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::memset(data.get(), kUnwritten, bytes);
  tiles_.push_back({scope, sequence, 0, bytes, std::move(data)});
  return {tiles_.back().data.get(), thread, threads, spare_slots};
}

void Threadgroup::close_tile(void* data) {
  const auto found =
      std::find_if(tiles_.rbegin(), tiles_.rend(), [&](const OpenTile& tile) { return tile.data.get() == data; });
  if (found == tiles_.rend()) {
    return;
  }
  const uint32_t threads = found->scope == kWholeThreadgroup ? lane_count() : lanes_per_simdgroup();
  if (++found->closed == threads) {
    tiles_.erase(std::prev(found.base()));
  }
}

Located Threadgroup::locate(const void* data, size_t bytes, bool write) const {
  const auto* begin = static_cast<const std::byte*>(data);
  const auto inside = [&](const void* base, size_t size) {
    const auto* first = static_cast<const std::byte*>(base);
    return begin >= first && begin + bytes <= first + size;
  };
  if (inside(arena_->bytes, sizeof arena_->bytes)) {
    const auto offset = size_t(begin - arena_->bytes);
    for (const Variable& variable : variables_) {
      if (offset >= variable.offset && offset + bytes <= variable.offset + variable.bytes) {
        return {Location::threadgroup, offset, variable.element_bytes};
      }
    }
    return {};
  }
  for (const Buffer& buffer : bound_) {
    if (inside(buffer.data, buffer.bytes)) {
      return {write && !buffer.writable ? Location::read_only
              : buffer.constant         ? Location::uncounted
                                        : Location::device};
    }
  }
  if (inside(kAbsentArgument, kAbsentBytes)) {
    return {write ? Location::read_only : Location::uncounted};
  }
  for (const OpenTile& tile : tiles_) {
    if (inside(tile.data.get(), tile.bytes)) {
      return {Location::uncounted};
    }
  }
  return {};
}

bool Threadgroup::may_access(const void* data, size_t bytes, bool write) const {
  const Location location = locate(data, bytes, write).location;
  return location != Location::outside && location != Location::read_only;
}

Nearest Threadgroup::nearest(const void* data) const {
  constexpr ptrdiff_t kNear = 1 << 20;
  const auto* at = static_cast<const std::byte*>(data);
  Nearest best{-1, kNear, ""};
  for (size_t slot = 0; slot < dispatch_.buffers.size(); ++slot) {
    const auto* base = static_cast<const std::byte*>(dispatch_.buffers[slot].data);
    if (!base) {
      continue;
    }
    const ptrdiff_t before = base - at;
    const ptrdiff_t after = at - (base + dispatch_.buffers[slot].bytes);
    if (before > 0 && before < best.bytes) {
      best = {int(slot), before, "before"};
    }
    if (after >= 0 && after < best.bytes) {
      best = {int(slot), after, "past the end of"};
    }
  }
  return best;
}

// ---- Faults ----

std::string Threadgroup::located(Place place, const char* message) const {
  if (place.line == 0) {
    place = {kernel_.site.file_name(), kernel_.site.line()};  // the lane has not reached a collective yet
  }
  return std::string(place.file) + ":" + std::to_string(place.line) + ": " + message + " [kernel " +
         std::string(dispatch_.kernel);
}

void Threadgroup::fail(Place place, const char* message) {
  {
    const ThreadIds& self = running_->ids;
    const Size3 at = self.threadgroup_position;
    char where[96];
    std::snprintf(where, sizeof where, ", threadgroup (%u, %u, %u), thread %u, SIMD group %u]", at.x, at.y, at.z,
                  self.index, self.simdgroup);
    fault_message_ = located(place, message) + where;
  }
  switch_context(running_->context, scheduler_, true);
  __builtin_unreachable();
}

void Threadgroup::warn(Place place, const char* message) { warnings_.insert(located(place, message) + "]"); }

void Threadgroup::complain(Site site, const char* message) {
  const Place place{site.file_name(), site.line()};
  if (!dispatch_.tolerant) {
    fail(place, message);
  }
  warn(place, message);
}

void fault(Site site, const char* format, ...) {
  char message[kMessageBytes];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  running_lane->group->fail({site.file_name(), site.line()}, message);
}

// ---- The interface of runtime.h that needs no more than the running lane ----

ThreadIds thread_ids() { return running_lane->ids; }

uint32_t lane_index() { return running_lane->ids.lane; }

void* bound_buffer(int slot) {
  const Lane& self = *running_lane;
  const bool known = slot >= 0 && slot < kBufferSlots;
  if (!known || !self.group->dispatch().buffers[size_t(slot)].data) {
    fault(self.site, "nothing is bound to buffer(%d)", slot);
  }
  return self.group->dispatch().buffers[size_t(slot)].data;
}

void* absent_argument() { return const_cast<std::byte*>(kAbsentArgument); }

void limit_threads(uint32_t limit, Site site) {
  const Size3 shape = running_lane->ids.threads;
  const uint32_t threads = shape.x * shape.y * shape.z;
  if (threads > limit) {
    fault(site, "max_total_threads_per_threadgroup(%u) in a threadgroup of %u threads", limit, threads);
  }
}

int64_t function_constant(int id, bool* defined) {
  for (const Constant& constant : running_lane->group->dispatch().constants) {
    if (constant.id == id) {
      *defined = true;
      return constant.value;
    }
  }
  *defined = false;
  return 0;
}

void* threadgroup_variable(const VariableDeclaration& declaration, Site site) {
  return running_lane->group->variable(declaration, site);
}

uint32_t gather_lanes(const void* own, size_t bytes, void* all, Site site) {
  GatherCall call{own, bytes, all};
  return running_lane->group->gather_lanes(call, site);
}

void note_uniform_call(uint64_t arguments, Site site) {
  Lane& self = *running_lane;
  if (self.group->uniform()) {
    return;
  }
  self.site = site;
  self.history = mix(mix(self.history, site.line() * 1024ull + site.column()), arguments);
}

Tile open_tile(uint32_t simdgroups, size_t bytes, Site site) {
  return running_lane->group->open_tile(simdgroups, bytes, site);
}

void close_tile(void* data) { running_lane->group->close_tile(data); }

}  // namespace metal_host
