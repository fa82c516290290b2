// What is done to rows of numbers around a product: conversions of half types, and the epilogue. One set of functions
// per instruction set.
#pragma once

#include <cstdint>

#include "csrc/backends/cpu/isa.h"
#include "csrc/epilogue.h"
#include "csrc/problem.h"

namespace mlx_gemm {

// Float32 numbers that are computed in place.
struct FloatRows {
  float* data;
  int64_t ld;
  int64_t rows;
  int64_t columns;
};

// Added to rows: a stride of 0 repeats.
struct AddendRows {
  const float* data;
  int64_t row_stride;
  int64_t column_stride;
  float factor;
};

// sums[j * x_step + i * line_step] (+)= line i . x[j]: lines of any type, read once for up to 8 vectors x.
struct LineProducts {
  const void* lines;
  int64_t ld;
  int64_t count;
  const float* x;
  int64_t ldx;
  int64_t vectors;  // at most kMostVectors
  int64_t k;
  float* sums;
  int64_t line_step;
  int64_t x_step;
  bool accumulate;
};
constexpr int64_t kMostVectors = 8;

// A matrix of any type, its columns side by side.
struct Rows {
  const void* data;
  int64_t ld;
  int64_t rows;
  int64_t columns;
};

// Of one type.
struct TypeKernels {
  void (*dots)(const LineProducts& products);     // lines lie along K, ld apart
  void (*updates)(const LineProducts& products);  // lines lie side by side, their next numbers ld apart; line_step is 1
  // As float32. Rows of the result are filled up with zeros, to multiples of kPackedMultiple numbers.
  void (*pack)(const Rows& from, float* to, int64_t ld);
  void (*pack_transposed)(const Rows& from, float* to, int64_t ld);
};
constexpr int64_t kPackedMultiple = 32;

struct RowKernels {
  // Exact, denormals too.
  void (*widen_half)(const uint16_t* from, int64_t count, float* to);
  void (*widen_bfloat)(const uint16_t* from, int64_t count, float* to);
  // Round to nearest, ties to even; a NaN stays one.
  void (*store_half)(const FloatRows& from, uint16_t* to, int64_t ld);
  void (*store_bfloat)(const FloatRows& from, uint16_t* to, int64_t ld);

  TypeKernels floats;
  TypeKernels halves;
  TypeKernels bfloats;

  void (*scale)(const FloatRows& x, float factor);
  void (*add)(const FloatRows& x, const AddendRows& addend);
  void (*activate)(const FloatRows& x, Activation activation);
};

extern const RowKernels kPortableRowKernels;
#if defined(__x86_64__)
extern const RowKernels kAvx2RowKernels;
extern const RowKernels kAvx512RowKernels;
#endif

// Those of cpu_isa().
const RowKernels& row_kernels();

// Theirs for a type; null where they have none.
const TypeKernels* type_kernels(Dtype dtype);

}  // namespace mlx_gemm
