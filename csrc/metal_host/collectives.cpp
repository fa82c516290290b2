// The collective operations: what the last lane to arrive does for all of them.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "csrc/metal_host/checker.h"
#include "csrc/metal_host/half.h"
#include "csrc/metal_host/multiply_tile.h"
#include "csrc/metal_host/threadgroup.h"

namespace metal_host {

namespace {

constexpr int kFragment = 8;  // rows and columns of a simdgroup_matrix

// The lane's two elements are (row, col) and (row, col + 1): the layout of M1 to M5, which shipping kernels rely on.
int fragment_row(int lane) { return ((lane / 4) & 4) + (lane / 2) % 4; }
int fragment_col(int lane) { return ((lane / 4) & 2) * 2 + lane % 2 * 2; }

float load(const void* data, int index, Element element) {
  switch (element) {
    case Element::float32:
      return static_cast<const float*>(data)[index];
    case Element::float16:
      return float_from_half_bits(static_cast<const uint16_t*>(data)[index]);
    case Element::bfloat16:
      return float_from_bfloat_bits(static_cast<const uint16_t*>(data)[index]);
  }
  return 0.0f;
}

void store(void* data, int index, Element element, float value) {
  switch (element) {
    case Element::float32:
      static_cast<float*>(data)[index] = value;
      break;
    case Element::float16:
      static_cast<uint16_t*>(data)[index] = half_bits(value);
      break;
    case Element::bfloat16:
      static_cast<uint16_t*>(data)[index] = bfloat_bits(value);
      break;
  }
}

using Fragment = float[kFragment][kFragment];

// Calls visit(lane's call, index within the lane's elements, row, column) for the 64 elements of a fragment.
template <class Visit>
void for_each_element(Threadgroup& group, uint32_t first, Visit visit) {
  if (group.uniform()) {
    const auto& call = *static_cast<const Multiply8x8*>(group.lane(first).call);
    for (int i = 0; i < kFragment * kFragment; ++i) {
      visit(call, i, i / kFragment, i % kFragment);
    }
    return;
  }
  for (int lane = 0; lane < int(kSimdWidth); ++lane) {
    const auto& call = *static_cast<const Multiply8x8*>(group.lane(first + uint32_t(lane)).call);
    const int row = fragment_row(lane);
    const int col = fragment_col(lane);
    visit(call, 0, row, col);
    visit(call, 1, row, col + 1);
  }
}

void multiply_fragments(Threadgroup& group, uint32_t first) {
  Fragment a;
  Fragment b;
  Fragment d;
  for_each_element(group, first, [&](const Multiply8x8& call, int i, int row, int col) {
    a[row][col] = load(call.a, i, call.left);
    b[row][col] = load(call.b, i, call.right);
    d[row][col] = call.c ? load(call.c, i, call.accumulator) : 0.0f;
  });
  for (int row = 0; row < kFragment; ++row) {
    for (int k = 0; k < kFragment; ++k) {
      for (int col = 0; col < kFragment; ++col) {
        d[row][col] += a[row][k] * b[k][col];
      }
    }
  }
  for_each_element(group, first, [&](const Multiply8x8& call, int i, int row, int col) {
    store(call.d, i, call.accumulator, d[row][col]);
  });
  group.counters().multiplies++;
}

uint64_t hash(uint64_t seed, uint64_t value) { return (seed ^ value) * 0x9E3779B97F4A7C15ull; }

uint64_t hash(uint64_t seed, const TensorView& view) {
  seed = hash(seed, reinterpret_cast<uintptr_t>(view.data));
  seed = hash(seed, uint64_t(uint32_t(view.extent[0])) << 32 | uint32_t(view.extent[1]));
  return hash(seed, uint64_t(view.stride));
}

void check_bound(const TensorView& view, Site site) {
  if (const int slot = unbound_slot(view.data); slot >= 0) {
    fault(site, "matmul2d on a tensor in buffer(%d), but nothing is bound to buffer(%d)", slot, slot);
  }
}

// The part of an operand that a product of `rows` x `cols` (as stored: dimension 1 x dimension 0) touches must be ours.
void check_bounds(const Threadgroup& group, const TensorView& view, int64_t cols, int64_t rows, Site site) {
  if (cols <= 0 || rows <= 0) {
    return;
  }
  const size_t bytes = size_t((rows - 1) * view.stride + cols) * element_bytes(view.element);
  if (!group.may_access(view.data, bytes, false)) {
    fault(site, "matmul2d reads %lld rows of %lld elements (stride %lld) outside every bound buffer", (long long)rows,
          (long long)cols, (long long)view.stride);
  }
}

template <class T>
int first_unwritten(const void* data, int elements) {
  const auto* values = static_cast<const T*>(data);
  // Without an early exit the search vectorises, and it almost never finds anything.
  int found = 0;
  for (int i = 0; i < elements; ++i) {
    found += is_unwritten(values[i]);
  }
  return found == 0 ? -1 : int(std::find_if(values, values + elements, is_unwritten<T>) - values);
}

// A cooperative tensor is read whole.
void check_initialised(const TensorView& tensor, const char* verb, Site site) {
  if (!tensor.cooperative) {
    return;
  }
  const int columns = tensor.extent[0];
  const int elements = columns * tensor.extent[1];
  const int at = tensor.element == Element::float32 ? first_unwritten<float>(tensor.data, elements)
                                                    : first_unwritten<uint16_t>(tensor.data, elements);
  if (at >= 0) {
    fault(site, "matmul2d %s a cooperative tensor whose element (%d, %d) nobody has written", verb, at / columns,
          at % columns);
  }
}

// Extents of the product after clipping to the operands.
TileProduct clip(Threadgroup& group, const MatmulCall& call, Site site) {
  const int left_k = call.left.extent[call.transpose_left ? 1 : 0];
  const int left_m = call.left.extent[call.transpose_left ? 0 : 1];
  const int right_k = call.right.extent[call.transpose_right ? 0 : 1];
  const int right_n = call.right.extent[call.transpose_right ? 1 : 0];
  const TensorView& out = call.destination;
  const int k = call.k >= 0 ? std::min({call.k, left_k, right_k}) : left_k;
  if (k < call.k) {
    char message[128];
    std::snprintf(message, sizeof message,
                  "matmul2d with static k=%d, but the operands extend to %d (left) and %d (right) along K", call.k,
                  left_k, right_k);
    group.complain(site, message);
  }
  if (call.k < 0 && left_k != right_k) {
    fault(site, "matmul2d operands disagree along K: %d (left) and %d (right)", left_k, right_k);
  }
  TileProduct product{call};
  product.k = k;
  product.m = std::min({call.m, left_m});
  product.n = std::min({call.n, right_n});
  product.rows = std::min(call.m, out.extent[1]);
  product.cols = std::min(call.n, out.extent[0]);
  product.m = std::min(product.m, product.rows);
  product.n = std::min(product.n, product.cols);
  if (product.m <= 0 || product.n <= 0 || product.k <= 0) {
    fault(site, "matmul2d on an empty tile: m=%d n=%d k=%d after clipping", product.m, product.n, product.k);
  }
  const bool tl = call.transpose_left;
  const bool tr = call.transpose_right;
  for (const TensorView* view : {&call.left, &call.right, &call.destination}) {
    check_bound(*view, site);
  }
  check_bounds(group, call.left, tl ? product.m : product.k, tl ? product.k : product.m, site);
  check_bounds(group, call.right, tr ? product.k : product.n, tr ? product.n : product.k, site);
  if (!out.cooperative) {
    const size_t bytes = size_t((product.rows - 1) * out.stride + product.cols) * element_bytes(out.element);
    if (!group.may_access(out.data, bytes, true)) {
      fault(site, "matmul2d writes %d rows of %d elements outside every writable buffer", product.rows, product.cols);
    }
  }
  return product;
}

}  // namespace

void threadgroup_barrier(uint32_t flags, Site site) {
  Lane& self = *current_lane();
  Threadgroup& group = *self.group;
  group.meet(group.whole_threadgroup(), Collective::threadgroup_barrier, flags, site, [&] {
    group.check_histories(0, group.lane_count(), site);
    group.complete_barrier(flags);
  });
}

void simdgroup_barrier(uint32_t flags, Site site) {
  Lane& self = *current_lane();
  Threadgroup& group = *self.group;
  Rendezvous& point = group.simdgroup_of(self);
  group.meet(point, Collective::simdgroup_barrier, flags, site, [&] {
    group.check_histories(point.first, point.expected, site);
    if (Checker* checker = group.checker()) {
      checker->simdgroup_barrier(self.ids.simdgroup, flags);
    }
  });
}

void multiply_8x8(const Multiply8x8& call, Site site) {
  Lane& self = *current_lane();
  Threadgroup& group = *self.group;
  Rendezvous& point = group.simdgroup_of(self);
  self.call = const_cast<Multiply8x8*>(&call);
  group.meet(point, Collective::multiply_8x8, call.c != nullptr, site, [&] {
    group.check_histories(point.first, point.expected, site);
    multiply_fragments(group, point.first);
  });
}

void matmul2d(const MatmulCall& call, Site site) {
  Lane& self = *current_lane();
  Threadgroup& group = *self.group;
  const bool whole = call.simdgroups > 1;
  if (whole && call.simdgroups * group.lanes_per_simdgroup() != group.lane_count()) {
    fault(site, "execution_simdgroups<%u> in a threadgroup of %u SIMD groups", call.simdgroups,
          group.lane_count() / group.lanes_per_simdgroup());
  }
  Rendezvous& point = whole ? group.whole_threadgroup() : group.simdgroup_of(self);
  const uint64_t arguments = hash(hash(hash(0, call.left), call.right), call.destination);
  group.meet(point, Collective::matmul2d, arguments, site, [&] {
    group.check_histories(point.first, point.expected, site);
    check_initialised(call.left, "multiplies", site);
    check_initialised(call.right, "multiplies", site);
    if (call.accumulate && !group.tile_is_written(call.destination.data)) {
      check_initialised(call.destination, "accumulates into", site);
    }
    const TileProduct product = clip(group, call, site);
    const auto right_rows = size_t(call.transpose_right ? product.n : product.k);
    const auto right_cols = size_t(call.transpose_right ? product.k : product.n);
    const size_t right_elements = (right_rows - 1) * size_t(call.right.stride) + right_cols;
    const bool keep = group.is_constant(call.right.data, right_elements * element_bytes(call.right.element));
    PackedOperands* kept = keep ? &group.packed_operands() : nullptr;
    if (Checker* checker = group.checker()) {
      checker->begin_collective(point);
      multiply_tile(
          product, [&](const void* data, size_t bytes, bool write) { checker->access(data, bytes, write, nullptr); },
          kept);
      checker->end_collective();
    } else {
      multiply_tile(product, nullptr, kept);
    }
    if (product.rows == call.destination.extent[1] && product.cols == call.destination.extent[0]) {
      group.tile_was_written(call.destination.data);
    }
    group.counters().multiplies++;
  });
}

}  // namespace metal_host
