// Copies of a dispatch's buffers, far apart: past the end of one lies nothing, and never the next one.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "csrc/metal_host/host.h"

namespace metal_host {

class IsolatedBuffers {
 public:
  using Buffers = std::array<Buffer, kBufferSlots>;

  // Throws std::bad_alloc.
  explicit IsolatedBuffers(const Buffers& originals);
  ~IsolatedBuffers();
  IsolatedBuffers(const IsolatedBuffers&) = delete;
  IsolatedBuffers& operator=(const IsolatedBuffers&) = delete;

  const Buffers& copies() const { return copies_; }

  // Writes what the kernel wrote back to the originals.
  void copy_back() const;

 private:
  // Originals that overlap are copied as one.
  struct Region {
    std::byte* original;
    size_t bytes;
    std::byte* copy;
    bool writable;
  };
  void find_regions();
  void map_regions();

  Buffers originals_;
  Buffers copies_;
  std::vector<Region> regions_;
  std::byte* mapping_ = nullptr;
  size_t mapped_ = 0;
};

}  // namespace metal_host
