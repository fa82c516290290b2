// tensorops_sync: the K loop of tensorops taken apart, so that the SIMD groups of a threadgroup stay in step.
//
//   C[m, n] = sum_k A[m, k] B[k, n]            float32, row-major, M, N, K multiples of BM, BN, BK
//
//   grid              N/BN x M/BM threadgroups (1-D for the Morton row) of WM WN SIMD groups
//   threadgroup       a BM x BN tile of C in a cooperative tensor; per step a barrier and one matmul2d of static K = BK
//   threadgroup bytes 0
//   requested bytes   4 K (MN/BN + NM/BM) read, 4 MN written
//   FLOP/byte         BM BN / (2 (BM + BN)): 16 for 64x64, 21.3 for 64x128; BK cancels out
//
// In one long operation the SIMD groups drift apart along K and evict each other's rows from the cache. The barrier
// orders no memory (mem_none): it only makes them start each step together. Synchronising along K is Apple's advice
// (Tech Talk 111432). The accumulators stay in registers and are stored once.
//
// Tiles are built from 64-bit pointers instead of slices: no offset inside a tensor can grow large.
//
// Toolchains before macOS 26 have no tensors: for them the file is empty.
#if defined(__HAVE_TENSOR__) && __has_include(<MetalPerformancePrimitives/MetalPerformancePrimitives.h>)
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#include <metal_stdlib>
#include <metal_tensor>

#include "metal/common/instantiate.h"
#include "metal/common/tile_order.h"
#include "metal/shared/params.h"

using namespace metal;
using namespace mpp::tensor_ops;
using namespace mlx_gemm;

// Operands are not const: matmul2d rejects tensors of const elements.
template <int BM, int BN, int BK, int SIMDGROUPS, TileOrder ORDER>
[[kernel, max_total_threads_per_threadgroup(32 * SIMDGROUPS)]] void tensorops_sync(
    device float* A [[buffer(kBufferA)]],
    device float* B [[buffer(kBufferB)]],
    device float* C [[buffer(kBufferC)]],
    constant GemmParams& p [[buffer(kBufferParams)]],
    uint2 group [[threadgroup_position_in_grid]]) {
  using ATile = tensor<device float, extents<int, BK, BM>, tensor_inline>;
  using BTile = tensor<device float, extents<int, BN, BK>, tensor_inline>;
  using CTile = tensor<device float, extents<int, BN, BM>, tensor_inline>;
  constexpr auto descriptor =
      matmul2d_descriptor(BM, BN, BK, false, false, false, matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<descriptor, execution_simdgroups<SIMDGROUPS>> op;

  const TilePosition tile = tile_of<ORDER, BM, BN>(group.x, group.y, p.M, p.N);
  const size_t row = size_t(tile.row) * BM;
  const size_t col = size_t(tile.column) * BN;
  device float* a_rows = A + row * size_t(p.lda);
  device float* b_columns = B + col;

  auto acc = op.template get_destination_cooperative_tensor<ATile, BTile, float>();
#pragma clang loop unroll(full)
  for (ushort i = 0; i < acc.get_capacity(); ++i) {
    if (acc.is_valid_element(i)) {
      acc[i] = 0.0f;
    }
  }

  for (int k = 0; k < p.K; k += BK) {
    threadgroup_barrier(mem_flags::mem_none);
    ATile a(a_rows + k, extents<int, BK, BM>{}, array<int, 2>{1, p.lda});
    BTile b(b_columns + size_t(k) * size_t(p.ldb), extents<int, BN, BK>{}, array<int, 2>{1, p.ldb});
    op.run(a, b, acc);
  }

  CTile c(C + row * size_t(p.ldc) + col, extents<int, BN, BM>{}, array<int, 2>{1, p.ldc});
  acc.store(c);
}

#define GEMM_TENSOROPS_SYNC(NAME, BM, BN, BK, WM, WN, ORDER, ...) \
  GEMM_INSTANTIATE(NAME, tensorops_sync<BM, BN, BK, WM * WN, TileOrder::ORDER>)
#include "metal/shared/gemm_kernels.def"
#endif
