// Host/kernel interface: structs passed by value to a kernel and the slots they are bound to.
// Compiles as Metal and as C++20, with the same layout on both sides.
#pragma once

#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <cstdint>
#endif

namespace mlx_gemm {

// How a threadgroup finds its tile: from a 2-D grid, row-major or swizzled, or from a 1-D grid along the Morton curve.
enum class TileOrder { row_major, swizzle_1, swizzle_2, swizzle_3, morton };

// Buffer slots of every GEMM kernel. The last two belong to the epilogue of production kernels.
enum GemmBuffer { kBufferA = 0, kBufferB = 1, kBufferC = 2, kBufferParams = 3, kBufferAddend = 4, kBufferResidual = 5 };

// Function constants of production kernels.
enum GemmConstant {
  kConstantTransposeA = 0,  // A is stored [K, M]
  kConstantTransposeB = 1,  // B is stored [N, K]
  kConstantHasC = 2,
  kConstantHasResidual = 3
};

enum GemmActivation {
  kActivationNone = 0,
  kActivationRelu = 1,
  kActivationGelu = 2,
  kActivationGeluTanh = 3,
  kActivationSilu = 4
};

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

// Batch dimensions that one launch runs over, outermost first; unused ones have length 1.
enum GemmBatch { kBatchDims = 3 };

// What a production kernel adds to its product: strides in elements, 0 where it is broadcast. The origin is the first
// element, from the start of the binding.
struct FusedGemmAddend {
  int64_t origin;
  int64_t row_stride;
  int64_t column_stride;
  int64_t batch_strides[kBatchDims];
};

// D[M, N] = activation(alpha A[M, K] B[K, N] + beta C) + residual, for every index of a batch. Leading dimensions are
// strides of the rows as they are stored, in elements like all strides.
struct FusedGemmParams {
  int64_t a_origin;
  int64_t b_origin;
  int64_t a_batch_strides[kBatchDims];
  int64_t b_batch_strides[kBatchDims];
  FusedGemmAddend c;
  FusedGemmAddend residual;
  int32_t batch_shape[kBatchDims];
  int32_t M;
  int32_t N;
  int32_t K;
  int32_t lda;
  int32_t ldb;
  int32_t order;       // TileOrder
  int32_t activation;  // GemmActivation
  float alpha;
  float beta;
};

static_assert(sizeof(FusedGemmParams) == 208, "FusedGemmParams has the same size on both sides");
static_assert(
    __builtin_offsetof(FusedGemmParams, residual) == 112,
    "FusedGemmParams has the same layout on both sides");
static_assert(__builtin_offsetof(FusedGemmParams, M) == 172, "FusedGemmParams has the same layout on both sides");

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
