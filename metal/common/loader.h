// Stages a block of a matrix in threadgroup memory.
#pragma once

#include <metal_stdlib>

namespace mlx_gemm {

// `source` is the block's first element in its matrix, of which `rows` x `columns` are left. The rest of the block
// becomes zero: whatever lies there does not reach a sum.
template <typename T, int ROWS, int COLUMNS, int STRIDE, int THREADS>
METAL_FUNC void load_block(
    threadgroup T* block,
    device const T* source,
    int ld,
    int rows,
    int columns,
    uint thread_index) {
  constexpr int VECTOR = 16 / int(sizeof(T));  // neighbours that a thread reads together
  constexpr int PER_ROW = COLUMNS / VECTOR;
  static_assert(COLUMNS % VECTOR == 0, "a row of the block is a whole number of vectors");
  for (int i = int(thread_index); i < ROWS * PER_ROW; i += THREADS) {
    const int row = i / PER_ROW;
    const int column = i % PER_ROW * VECTOR;
    threadgroup T* to = block + row * STRIDE + column;
    if (row < rows && column + VECTOR <= columns) {
      device const T* from = source + size_t(row) * size_t(ld) + column;
#pragma clang loop unroll(full)
      for (int j = 0; j < VECTOR; ++j) {
        to[j] = from[j];
      }
    } else {
      for (int j = 0; j < VECTOR; ++j) {
        const bool inside = row < rows && column + j < columns;
        to[j] = inside ? source[size_t(row) * size_t(ld) + column + j] : T(0.0f);
      }
    }
  }
}

}  // namespace mlx_gemm
