// Where the lanes of a SIMD group or threadgroup meet, and what it means when some of them do not come.
#include <cstring>

#include "csrc/metal_host/checker.h"
#include "csrc/metal_host/threadgroup.h"

namespace metal_host {

namespace {

bool same_place(const Site& a, const Site& b) {
  const bool same_file = a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0;
  return same_file && a.line() == b.line() && a.column() == b.column();
}

uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x9E3779B97F4A7C15ull; }

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

uint32_t gather_lanes(const void* own, size_t bytes, void* all, Site site) {
  GatherCall call{own, bytes, all};
  return current_lane()->group->gather_lanes(call, site);
}

void note_uniform_call(uint64_t arguments, Site site) {
  Lane& self = *current_lane();
  if (self.group->uniform()) {
    return;
  }
  self.site = site;
  self.history = mix(mix(self.history, site.line() * 1024ull + site.column()), arguments);
}

}  // namespace metal_host
