// What a kernel can reach, and which buffer, threadgroup variable or cooperative tile an address belongs to.
#include <algorithm>
#include <cstring>

#include "csrc/metal_host/threadgroup.h"

namespace metal_host {

namespace {

constexpr size_t kVariableAlignment = 16;
constexpr size_t kAbsentBytes = 4096;  // of the largest argument that a kernel looks at although it is absent
alignas(64) const std::byte kAbsentArgument[kAbsentBytes] = {};

// The addresses of unbound slots in checked dispatches: no memory has them, so that an access tells which slot it
// meant.
constexpr uintptr_t kUnboundSlots = uintptr_t(1) << 62;
constexpr uintptr_t kUnboundSlot = uintptr_t(1) << 40;

}  // namespace

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
  AlignedBytes data = aligned_bytes(bytes);
  std::memset(data.get(), kUnwritten, bytes);
  tiles_.push_back({scope, sequence, 0, bytes, std::move(data)});
  return {tiles_.back().data.get(), thread, threads, spare_slots};
}

std::vector<Threadgroup::OpenTile>::iterator Threadgroup::tile_at(const void* data) {
  return std::ranges::find_if(tiles_, [&](const OpenTile& tile) { return tile.data.get() == data; });
}

bool Threadgroup::tile_is_written(const void* data) {
  const auto found = tile_at(data);
  return found != tiles_.end() && found->written;
}

void Threadgroup::tile_was_written(const void* data) {
  if (const auto found = tile_at(data); found != tiles_.end()) {
    found->written = true;
  }
}

void Threadgroup::close_tile(void* data) {
  const auto found = tile_at(data);
  if (found == tiles_.end()) {
    return;
  }
  const uint32_t threads = found->scope == kWholeThreadgroup ? lane_count() : lanes_per_simdgroup();
  if (++found->closed == threads) {
    tiles_.erase(found);
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

bool Threadgroup::is_constant(const void* data, size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(data);
  bool constant = false;
  for (const Buffer& buffer : bound_) {
    const auto* first = static_cast<const std::byte*>(buffer.data);
    const bool meets = begin < first + buffer.bytes && first < begin + bytes;
    if (meets && buffer.writable) {
      return false;
    }
    constant |= begin >= first && begin + bytes <= first + buffer.bytes;
  }
  return constant;
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

void* bound_buffer(int slot) {
  const Lane& self = *current_lane();
  const bool known = slot >= 0 && slot < kBufferSlots;
  void* const data = known ? self.group->dispatch().buffers[size_t(slot)].data : nullptr;
  if (!data && !(known && self.group->checker())) {
    fault(self.site, "nothing is bound to buffer(%d)", slot);
  }
  return data ? data : reinterpret_cast<void*>(kUnboundSlots + uintptr_t(slot) * kUnboundSlot + kUnboundSlot / 2);
}

int unbound_slot(const void* data) {
  const uintptr_t slot = (reinterpret_cast<uintptr_t>(data) - kUnboundSlots) / kUnboundSlot;
  return slot < uintptr_t(kBufferSlots) ? int(slot) : -1;
}

void* absent_argument() { return const_cast<std::byte*>(kAbsentArgument); }

void* threadgroup_variable(const VariableDeclaration& declaration, Site site) {
  return current_lane()->group->variable(declaration, site);
}

Tile open_tile(uint32_t simdgroups, size_t bytes, Site site) {
  return current_lane()->group->open_tile(simdgroups, bytes, site);
}

void close_tile(void* data) { current_lane()->group->close_tile(data); }

}  // namespace metal_host
