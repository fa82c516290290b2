// Memory that the widest vectors load without crossing cache lines.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace metal_host {

struct AlignedFree {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};

using AlignedBytes = std::unique_ptr<std::byte[], AlignedFree>;

inline AlignedBytes aligned_bytes(size_t bytes) {
  constexpr size_t kLine = 64;
  AlignedBytes memory(static_cast<std::byte*>(std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine)));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace metal_host
