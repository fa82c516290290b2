// Which thread of a scope holds which element of a cooperative tensor.
#pragma once

#include "metal_host/types.h"

namespace METAL_HOST_MSL::metal::cooperative_layout {

// In the tile: index 0 runs along the contiguous dimension.
using Position = array<uint, 2>;

// Not specified, so scrambled, and differently for each operation: nothing may depend on it.
template <uint Multiplier>
struct Scrambled {
  // A multiplier without a common factor with the tile size permutes its elements.
  template <uint Columns, uint Rows>
  static Position position(uint thread, uint slot, uint share) {
#if METAL_HOST_LANES == 32
    const uint at = uint(ulong(thread * share + slot) * Multiplier % (Columns * Rows));
#else
    const uint at = thread * share + slot;
#endif
    return {at % Columns, at / Columns};
  }
};

// The layout of Apple10 GPUs for operations of one SIMD group on fragments of 16 x 16 elements, 8 of them in each lane.
// Shipping kernels write it down and fill the slots of a tensor by it. Every bit of the lane and of the slot adds its
// step to the position.
struct Step {
  uint along;   // dimension 0
  uint across;  // dimension 1
};
struct Steps {
  Step lane[5];
  Step slot[3];      // of one fragment
  int fragment_bit;  // of the slot: which fragment, in a tensor of two
};
// Relaxed precision of any type, and float at full precision.
inline constexpr Steps kApple10[] = {
    {{{4, 0}, {0, 1}, {0, 2}, {8, 0}, {0, 4}}, {{1, 0}, {2, 0}, {0, 8}}, 3},
    {{{2, 0}, {0, 1}, {0, 2}, {4, 0}, {0, 4}}, {{1, 0}, {8, 0}, {0, 8}}, 2},
};

constexpr uint kFragmentSide = 16;

// Of one lane and slot in a tensor of one or two fragments, side by side or one below the other.
constexpr Position apple10_position(const Steps& steps, uint lane, uint slot, uint columns, uint rows) {
  uint element = slot;
  Position at{0, 0};
  if (columns * rows > kFragmentSide * kFragmentSide) {
    const uint below = slot & ((1u << steps.fragment_bit) - 1);
    const uint above = slot >> (steps.fragment_bit + 1);
    element = below | above << steps.fragment_bit;
    at[columns > kFragmentSide ? 0 : 1] = (slot >> steps.fragment_bit & 1) * kFragmentSide;
  }
  for (uint bit = 0; bit < 5; ++bit) {
    at[0] += (lane >> bit & 1) * steps.lane[bit].along;
    at[1] += (lane >> bit & 1) * steps.lane[bit].across;
  }
  for (uint bit = 0; bit < 3; ++bit) {
    at[0] += (element >> bit & 1) * steps.slot[bit].along;
    at[1] += (element >> bit & 1) * steps.slot[bit].across;
  }
  return at;
}

template <bool Relaxed>
struct Apple10 {
  template <uint Columns, uint Rows>
  static Position position([[maybe_unused]] uint thread, uint slot, uint /*share*/) {
#if METAL_HOST_LANES == 32
    static constexpr auto kPositions = [] {
      array<array<Position, 16>, 32> positions{};
      for (uint lane = 0; lane < 32; ++lane) {
        for (uint i = 0; i < 16; ++i) {
          positions[lane][i] = apple10_position(kApple10[Relaxed ? 0 : 1], lane, i, Columns, Rows);
        }
      }
      return positions;
    }();
    return kPositions[thread][slot];
#else
    return {slot % Columns, slot / Columns};
#endif
  }
};

}  // namespace METAL_HOST_MSL::metal::cooperative_layout
