#include "csrc/metal_host/isolated_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

namespace metal_host {

namespace {

constexpr size_t kPage = 16384;           // the largest of any machine we run on
constexpr size_t kGap = size_t(1) << 26;  // address space alone, never touched

size_t round_up(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::byte* begin_of(const Buffer& buffer) { return static_cast<std::byte*>(buffer.data); }

}  // namespace

IsolatedBuffers::IsolatedBuffers(const Buffers& originals) : originals_(originals), copies_(originals) {
  find_regions();
  map_regions();
  for (Buffer& buffer : copies_) {
    if (buffer.data) {
      const auto starts_later = [](const std::byte* data, const Region& region) { return data < region.original; };
      const auto next = std::upper_bound(regions_.begin(), regions_.end(), begin_of(buffer), starts_later);
      const Region& region = *std::prev(next);
      buffer.data = region.copy + (begin_of(buffer) - region.original);
    }
  }
}

IsolatedBuffers::~IsolatedBuffers() { munmap(mapping_, mapped_); }

void IsolatedBuffers::find_regions() {
  Buffers sorted = originals_;
  std::sort(sorted.begin(), sorted.end(), [](const Buffer& a, const Buffer& b) { return begin_of(a) < begin_of(b); });
  for (const Buffer& buffer : sorted) {
    if (!buffer.data) {
      continue;
    }
    std::byte* const begin = begin_of(buffer);
    if (!regions_.empty() && begin < regions_.back().original + regions_.back().bytes) {
      Region& region = regions_.back();
      region.bytes = std::max(region.bytes, size_t(begin - region.original) + buffer.bytes);
      region.writable = region.writable || buffer.writable;
    } else {
      regions_.push_back({begin, buffer.bytes, nullptr, buffer.writable});
    }
  }
}

void IsolatedBuffers::map_regions() {
  size_t bytes = kGap;
  for (const Region& region : regions_) {
    bytes += kPage + round_up(region.bytes) + kGap;
  }
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (mapping == MAP_FAILED) {
    throw std::bad_alloc();
  }
  mapped_ = bytes;
  mapping_ = static_cast<std::byte*>(mapping);
  std::byte* free = mapping_ + kGap;
  for (Region& region : regions_) {
    region.copy = free + reinterpret_cast<uintptr_t>(region.original) % kPage;  // aligned as the original is
    std::memcpy(region.copy, region.original, region.bytes);
    free += kPage + round_up(region.bytes) + kGap;
  }
}

void IsolatedBuffers::copy_back() const {
  for (const Region& region : regions_) {
    if (region.writable) {
      std::memcpy(region.original, region.copy, region.bytes);
    }
  }
}

}  // namespace metal_host
