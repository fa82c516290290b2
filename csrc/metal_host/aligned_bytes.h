// Memory that the widest vectors load without crossing cache lines.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace metal_host {

constexpr std::align_val_t kVectorAlignment{64};

struct AlignedDelete {
  void operator()(std::byte* bytes) const { ::operator delete[](bytes, kVectorAlignment); }
};

using AlignedBytes = std::unique_ptr<std::byte[], AlignedDelete>;

inline AlignedBytes aligned_bytes(size_t bytes) {
  return AlignedBytes(static_cast<std::byte*>(::operator new[](bytes, kVectorAlignment)));
}

}  // namespace metal_host
