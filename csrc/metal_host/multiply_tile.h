// The product behind matmul2d::run: packing, type conversion and the choice of a micro-kernel.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>

#include "csrc/metal_host/aligned_bytes.h"
#include "csrc/metal_host/runtime.h"

namespace metal_host {

constexpr size_t element_bytes(Element element) { return element == Element::float32 ? 4 : 2; }

// D[rows, cols] (+)= A[m, k] B[k, n]; rows and columns of D past m and n get zeros, as if the operands continued so.
struct TileProduct {
  const MatmulCall& call;
  int m = 0;
  int n = 0;
  int k = 0;
  int rows = 0;
  int cols = 0;
};

// Called for every contiguous run of operand or destination memory that the product touches.
using AccessObserver = std::function<void(const void* data, size_t bytes, bool write)>;

// Right operands as the micro-kernel wants them, kept while the same ones are multiplied with other left ones. Whoever
// adds one answers for its staying the same.
class PackedOperands {
 public:
  // What was packed, where and how.
  struct Key {
    const void* data;
    Element element;
    long row_stride;
    long col_stride;
    bool truncate;
    int rows;
    int cols;
    bool operator==(const Key&) const = default;
  };

  // Null if it is not there.
  const float* find(const Key& key) const;
  // Room for it, at the cost of those that were added first. Null if it is too large to keep.
  float* add(const Key& key, size_t floats);

 private:
  struct Entry {
    Key key;
    size_t floats;
    AlignedBytes data;

    float* values() const { return reinterpret_cast<float*>(data.get()); }
  };
  std::deque<Entry> entries_;
  size_t floats_ = 0;
};

// A right operand that does not change before the dispatch ends is packed into `kept`, or found there; null keeps none.
void multiply_tile(const TileProduct& product, const AccessObserver& observer, PackedOperands* kept);

// Name of the instruction set that the micro-kernel was chosen for.
const char* micro_kernel_isa();

}  // namespace metal_host
