// Which output tile a threadgroup computes. Pure integer code, the same for kernels and for the host.
#pragma once

#include "metal/shared/params.h"

namespace mlx_gemm {

struct TilePosition {
  uint32_t column;
  uint32_t row;
};

// Every second bit of x, packed: the inverse of interleaving two coordinates.
inline uint32_t even_bits(uint32_t x) {
  x &= 0x55555555u;
  x = (x | (x >> 1)) & 0x33333333u;
  x = (x | (x >> 2)) & 0x0f0f0f0fu;
  x = (x | (x >> 4)) & 0x00ff00ffu;
  return (x | (x >> 8)) & 0x0000ffffu;
}

// On a 1-D grid the Morton curve needs a square power of two of tiles; any other grid is walked row by row.
inline TilePosition morton_tile(uint32_t index, uint32_t tiles_m, uint32_t tiles_n) {
  const bool square_power_of_two = tiles_m == tiles_n && (tiles_m & (tiles_m - 1)) == 0;
  if (square_power_of_two) {
    return {even_bits(index), even_bits(index >> 1)};
  }
  return {index % tiles_n, index / tiles_n};
}

template <TileOrder ORDER, int BM, int BN>
inline TilePosition tile_of(uint32_t x, uint32_t y, int M, int N) {
  if (ORDER == TileOrder::row_major) {
    return {x, y};
  }
  return morton_tile(x, uint32_t((M + BM - 1) / BM), uint32_t((N + BN - 1) / BN));
}

// Tiles of production kernels. Swizzled by s, neighbouring threadgroups walk down 2^s rows of tiles before they go on
// to the next column, so that they share columns of B as well as rows of A: the grid has ceil(tiles_m / 2^s) rows of
// tiles_n 2^s threadgroups, and those at its lower edge may have no tile. The Morton curve takes a 1-D grid.
inline TilePosition ordered_tile(uint32_t x, uint32_t y, TileOrder order, uint32_t tiles_m, uint32_t tiles_n) {
  if (order == TileOrder::morton) {
    return morton_tile(x, tiles_m, tiles_n);
  }
  const int swizzle = int(order);
  return {x >> swizzle, (y << swizzle) + (x & ((1u << swizzle) - 1u))};
}

}  // namespace mlx_gemm
