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
  static Position position(uint thread, uint slot, uint share, uint columns, uint rows) {
#if METAL_HOST_LANES == 32
    const uint at = uint(ulong(thread * share + slot) * Multiplier % (columns * rows));
#else
    const uint at = thread * share + slot;
#endif
    return {at % columns, at / columns};
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

template <bool Relaxed>
struct Apple10 {
  static constexpr uint kSide = 16;  // of a fragment
  static constexpr const Steps& kSteps = kApple10[Relaxed ? 0 : 1];

  static Position position(uint thread, uint slot, uint /*share*/, uint columns, uint rows) {
#if METAL_HOST_LANES == 32
    const bool two_fragments = columns * rows > kSide * kSide;
    const uint fragment = two_fragments ? slot >> kSteps.fragment_bit & 1 : 0;
    const uint below = slot & ((1u << kSteps.fragment_bit) - 1);
    const uint element = two_fragments ? below | slot >> (kSteps.fragment_bit + 1) << kSteps.fragment_bit : slot;
    Position at = columns > kSide ? Position{fragment * kSide, 0} : Position{0, fragment * kSide};
    const auto add = [&](const Step& step, uint bit) {
      at[0] += bit * step.along;
      at[1] += bit * step.across;
    };
    for (uint bit = 0; bit < 5; ++bit) {
      add(kSteps.lane[bit], thread >> bit & 1);
    }
    for (uint bit = 0; bit < 3; ++bit) {
      add(kSteps.slot[bit], element >> bit & 1);
    }
    return at;
#else
    return {slot % columns, slot / columns};
#endif
  }
};

}  // namespace METAL_HOST_MSL::metal::cooperative_layout
