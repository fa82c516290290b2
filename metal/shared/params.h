// Host/kernel interface: structs passed by value to a kernel and the slots they are bound to.
// Compiles as Metal and as C++20, with the same layout on both sides.
#pragma once

#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <cstdint>
#endif

namespace mlx_gemm {

// How a threadgroup finds its tile: from a 2-D grid, or from a 1-D grid along the Morton curve.
enum class TileOrder { row_major, morton };

// Buffer slots of every GEMM kernel.
enum GemmBuffer { kBufferA = 0, kBufferB = 1, kBufferC = 2, kBufferParams = 3 };

// C[M, N] = A[M, K] B[K, N]; leading dimensions are row strides in elements.
struct GemmParams {
  int32_t M;
  int32_t N;
  int32_t K;
  int32_t lda;
  int32_t ldb;
  int32_t ldc;
};

static_assert(sizeof(GemmParams) == 24, "GemmParams has the same size on both sides");
static_assert(__builtin_offsetof(GemmParams, lda) == 12, "GemmParams has the same layout on both sides");
static_assert(__builtin_offsetof(GemmParams, ldc) == 20, "GemmParams has the same layout on both sides");

// Buffer slots and function constants of strided_copy, its threadgroup, and how many axes may count rows.
enum CopyBuffer { kCopyFrom = 0, kCopyTo = 1, kCopyParams = 2 };
enum CopyConstant { kCopyRowAxes = 0 };
enum CopyShape { kCopyThreadsX = 32, kCopyThreadsY = 8, kMaxCopyRowAxes = 8 };

// An array as rows of `columns` elements. As many axes as the function constant says count the rows, outermost first.
// Strides count elements of the source; the destination is row-contiguous.
struct CopyParams {
  int64_t origin;     // of the first element, from the start of the source's binding
  int64_t first_row;  // of this launch
  int64_t rows;
  int64_t columns;
  int64_t column_stride;
  int64_t row_lengths[kMaxCopyRowAxes];
  int64_t row_strides[kMaxCopyRowAxes];
};

static_assert(sizeof(CopyParams) == 168, "CopyParams has the same size on both sides");
static_assert(__builtin_offsetof(CopyParams, row_lengths) == 40, "CopyParams has the same layout on both sides");
static_assert(__builtin_offsetof(CopyParams, row_strides) == 104, "CopyParams has the same layout on both sides");

}  // namespace mlx_gemm
