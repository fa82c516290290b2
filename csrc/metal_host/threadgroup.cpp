#include "csrc/metal_host/threadgroup.h"

#include <algorithm>
#include <cstring>

#include "csrc/metal_host/checker.h"

namespace metal_host {

namespace {

// Fibers never move between OS threads, so this stays valid across a switch.
thread_local Lane* running_lane __attribute__((tls_model("initial-exec"))) = nullptr;

void fiber_entry() {
  begin_fiber();
  running_lane->group->run_lane();
  __builtin_unreachable();
}

}  // namespace

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

// ---- What the running lane asks ----

ThreadIds thread_ids() { return running_lane->ids; }

uint32_t lane_index() { return running_lane->ids.lane; }

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

}  // namespace metal_host
