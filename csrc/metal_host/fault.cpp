// How a running lane ends its threadgroup, or only complains.
#include <cstdarg>
#include <cstdio>

#include "csrc/metal_host/threadgroup.h"

namespace metal_host {

namespace {

constexpr size_t kMessageBytes = 1024;

}  // namespace

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
  current_lane()->group->fail({site.file_name(), site.line()}, message);
}

}  // namespace metal_host
