// Which output tile a threadgroup computes. Pure integer code.
#pragma once

#include "metal/shared/params.h"

namespace mlx_gemm {

// Every second bit of x, packed: the inverse of interleaving two coordinates.
inline uint even_bits(uint x) {
  x &= 0x55555555u;
  x = (x | (x >> 1)) & 0x33333333u;
  x = (x | (x >> 2)) & 0x0f0f0f0fu;
  x = (x | (x >> 4)) & 0x00ff00ffu;
  return (x | (x >> 8)) & 0x0000ffffu;
}

// (column, row) of the tile of threadgroup `group`. On a 1-D Morton grid the curve needs a square power of two of
// tiles; any other grid is walked row by row.
template <TileOrder ORDER, int BM, int BN>
inline uint2 tile_of(uint2 group, int M, int N) {
  if (ORDER == TileOrder::row_major) {
    return group;
  }
  const uint tiles_m = uint((M + BM - 1) / BM);
  const uint tiles_n = uint((N + BN - 1) / BN);
  const bool square_power_of_two = tiles_m == tiles_n && (tiles_m & (tiles_m - 1)) == 0;
  if (square_power_of_two) {
    return uint2(even_bits(group.x), even_bits(group.x >> 1));
  }
  return uint2(group.x % tiles_n, group.x / tiles_n);
}

}  // namespace mlx_gemm
