// Products by OpenBLAS, block of D by block of D, shared out over threads.
#pragma once

#include <functional>

#include "csrc/backends/cpu/epilogue.h"
#include "csrc/layout.h"

namespace mlx_gemm {

// A product whose operands can be addressed. K >= 1.
struct CpuProduct {
  const GemmView& view;
  const void* a;
  const void* b;
  const CpuEpilogue& epilogue;
};

// Part of one product of a batch.
struct Block {
  int64_t product;
  int64_t row;
  int64_t rows;
  int64_t column;
  int64_t columns;
};

// Float32, float64 and complex64 are multiplied where they are. Half types are widened part by part, their sums over
// all of K are float32.
void multiply_blocks(const CpuProduct& product);

// One block, on this thread.
void multiply_block(const CpuProduct& product, const Block& block);

constexpr int64_t divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

// Threads that a product of so many operations is worth.
int threads_for(const Problem& problem);

// body(index, threads) for every product of a batch, which is shared out by its products where there are enough of
// them: each then has one thread.
void for_products(const Problem& problem, const std::function<void(int64_t, int)>& body);

}  // namespace mlx_gemm
