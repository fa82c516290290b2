// The register-blocked inner product of the CPU, for one vector width. Included by one source file per instruction
// set; everything has internal linkage, so that code for a newer CPU cannot replace another file's.
#pragma once

#include "csrc/metal_host/micro_kernel_table.h"

namespace metal_host {
namespace {

// Steps along K for a cache line of what is read next: enough of them not to delay what is read now.
constexpr int kUnrolled = 4;
constexpr int kLineFloats = 16;
// Steps before the end of a block at which its results are fetched: long enough for them to arrive, too short for
// others to take their place.
constexpr int kLateSteps = 48;

// ROWS x (VECTORS * WIDTH) outputs stay in registers while k advances.
template <int WIDTH, int ROWS, int VECTORS>
inline void multiply_block(const MicroTile& tile, int row, int col) {
  typedef float Vector __attribute__((vector_size(WIDTH * sizeof(float)), aligned(sizeof(float)), may_alias));
  Vector acc[ROWS][VECTORS] = {};
  // A pointer for every three rows: one each would not fit the registers.
  constexpr int kRowsOfPointer = 3;
  constexpr int kPointers = (ROWS + kRowsOfPointer - 1) / kRowsOfPointer;
  const float* a[kPointers];
  for (int i = 0; i < kPointers; ++i) {
    a[i] = tile.a + (row + i * kRowsOfPointer) * tile.a_row;
  }
  const float* b = tile.b + col;
  constexpr int kSecondLevelCache = 2;
  const float* next = tile.next + row / ROWS * (tile.k / kUnrolled) * kLineFloats;
  const auto step = [&] {
    Vector right[VECTORS];
    for (int j = 0; j < VECTORS; ++j) {
      right[j] = *reinterpret_cast<const Vector*>(b + j * WIDTH);
    }
    for (int i = 0; i < ROWS; ++i) {
      const float left = a[i / kRowsOfPointer][i % kRowsOfPointer * tile.a_row];
      for (int j = 0; j < VECTORS; ++j) {
        acc[i][j] += left * right[j];
      }
    }
    for (int i = 0; i < kPointers; ++i) {
      a[i] += tile.a_k;
    }
    b += kPanelColumns;
  };
  float* const c = tile.c + row * tile.ldc + col;
  int k = 0;
  for (; k + kLateSteps + kUnrolled <= tile.k; k += kUnrolled) {
    __builtin_prefetch(next, 0, kSecondLevelCache);
    next += kLineFloats;
    step();
    step();
    step();
    step();
  }
  for (int i = 0; i < ROWS; ++i) {
    __builtin_prefetch(c + i * tile.ldc, 1);
    __builtin_prefetch(c + i * tile.ldc + VECTORS * WIDTH - 1, 1);
  }
  for (; k < tile.k; ++k) {
    step();
  }
  for (int i = 0; i < ROWS; ++i) {
    for (int j = 0; j < VECTORS; ++j) {
      Vector& to = *reinterpret_cast<Vector*>(c + i * tile.ldc + j * WIDTH);
      to = tile.accumulate ? to + acc[i][j] : acc[i][j];
    }
  }
}

// The rows from `row` on: ROWS at a time, then what is left.
template <int WIDTH, int ROWS, int VECTORS>
inline void multiply_rows(const MicroTile& tile, int row, int col) {
  for (; row + ROWS <= tile.rows; row += ROWS) {
    multiply_block<WIDTH, ROWS, VECTORS>(tile, row, col);
  }
  if constexpr (ROWS > 1) {
    multiply_rows<WIDTH, ROWS - 1, VECTORS>(tile, row, col);
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
