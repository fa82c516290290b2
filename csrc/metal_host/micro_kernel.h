// The register-blocked inner product of the host runtime, for one vector width. Included by one source file per
// instruction set; everything has internal linkage, so that code for a newer CPU cannot replace another file's.
#pragma once

#include "csrc/metal_host/micro_kernel_table.h"

namespace metal_host {
namespace {

// ROWS x (VECTORS * WIDTH) outputs stay in registers while k advances.
template <int WIDTH, int ROWS, int VECTORS>
inline void multiply_block(const MicroTile& tile, int row, int col) {
  typedef float Vector __attribute__((vector_size(WIDTH * sizeof(float)), aligned(sizeof(float)), may_alias));
  Vector acc[ROWS][VECTORS];
  for (int i = 0; i < ROWS; ++i) {
    for (int j = 0; j < VECTORS; ++j) {
      acc[i][j] = *reinterpret_cast<const Vector*>(tile.c + (row + i) * tile.ldc + col + j * WIDTH);
    }
  }
  const float* a = tile.a + row * tile.a_row;
  const float* b = tile.b + col;
  for (int k = 0; k < tile.k; ++k) {
    Vector right[VECTORS];
    for (int j = 0; j < VECTORS; ++j) {
      right[j] = *reinterpret_cast<const Vector*>(b + j * WIDTH);
    }
    for (int i = 0; i < ROWS; ++i) {
      const float left = a[i * tile.a_row];
      for (int j = 0; j < VECTORS; ++j) {
        acc[i][j] += left * right[j];
      }
    }
    a += tile.a_k;
    b += kPanelColumns;
  }
  for (int i = 0; i < ROWS; ++i) {
    for (int j = 0; j < VECTORS; ++j) {
      *reinterpret_cast<Vector*>(tile.c + (row + i) * tile.ldc + col + j * WIDTH) = acc[i][j];
    }
  }
}

// The rows from `row` on, ROWS at a time, what is left in halves of that.
template <int WIDTH, int ROWS, int VECTORS>
inline void multiply_rows(const MicroTile& tile, int row, int col) {
  for (; row + ROWS <= tile.rows; row += ROWS) {
    multiply_block<WIDTH, ROWS, VECTORS>(tile, row, col);
  }
  if constexpr (ROWS > 1) {
    multiply_rows<WIDTH, ROWS / 2, VECTORS>(tile, row, col);
  }
}

template <int WIDTH, int ROWS, int VECTORS>
inline void multiply_panel(const MicroTile& tile) {
  for (int col = 0; col < kPanelColumns; col += VECTORS * WIDTH) {
    multiply_rows<WIDTH, ROWS, VECTORS>(tile, 0, col);
  }
}

}  // namespace
}  // namespace metal_host
