// matmul2d beyond the ladder: element types, transposes, relaxed precision, memory and cooperative destinations.
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#include <metal_stdlib>
#include <metal_tensor>

using namespace metal;
using namespace mpp::tensor_ops;

struct Shape {
  int M;
  int N;
  int K;
};

constant constexpr int TILE_M = 64;
constant constexpr int TILE_N = 32;

// One threadgroup, one tile: C = A B with dynamic extents, A stored transposed if TA and B if TB.
template <typename A, typename B, typename D, bool TA, bool TB, bool RELAXED>
[[kernel]] void to_memory(
    device A* a_data [[buffer(0)]],
    device B* b_data [[buffer(1)]],
    device D* d_data [[buffer(2)]],
    constant Shape& shape [[buffer(3)]]) {
  using Left = tensor<device A, dextents<int, 2>, tensor_inline>;
  using Right = tensor<device B, dextents<int, 2>, tensor_inline>;
  using Out = tensor<device D, dextents<int, 2>, tensor_inline>;
  constexpr auto descriptor = matmul2d_descriptor(
      TILE_M, TILE_N, static_cast<int>(dynamic_extent), TA, TB, RELAXED, matmul2d_descriptor::mode::multiply);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  Left a(a_data, TA ? dextents<int, 2>(shape.M, shape.K) : dextents<int, 2>(shape.K, shape.M));
  Right b(b_data, TB ? dextents<int, 2>(shape.K, shape.N) : dextents<int, 2>(shape.N, shape.K));
  Out d(d_data, dextents<int, 2>(shape.N, shape.M));
  op.run(a, b, d);
}

// The same through a cooperative tensor that is stored twice as large: D = 2 A B.
template <typename A, typename B, typename D, bool TA, bool TB, bool RELAXED>
[[kernel]] void to_tile(
    device A* a_data [[buffer(0)]],
    device B* b_data [[buffer(1)]],
    device D* d_data [[buffer(2)]],
    constant Shape& shape [[buffer(3)]]) {
  using Left = tensor<device A, dextents<int, 2>, tensor_inline>;
  using Right = tensor<device B, dextents<int, 2>, tensor_inline>;
  using Out = tensor<device D, dextents<int, 2>, tensor_inline>;
  constexpr auto descriptor = matmul2d_descriptor(
      TILE_M, TILE_N, static_cast<int>(dynamic_extent), TA, TB, RELAXED,
      matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<descriptor, execution_simdgroup> op;
  Left a(a_data, TA ? dextents<int, 2>(shape.M, shape.K) : dextents<int, 2>(shape.K, shape.M));
  Right b(b_data, TB ? dextents<int, 2>(shape.K, shape.N) : dextents<int, 2>(shape.N, shape.K));
  Out d(d_data, dextents<int, 2>(shape.N, shape.M));
  auto acc = op.template get_destination_cooperative_tensor<Left, Right, D>();
  for (ushort i = 0; i < acc.get_capacity(); ++i) {
    if (acc.is_valid_element(i)) {
      acc[i] = D(0.0f);
    }
  }
  op.run(a, b, acc);
  op.run(a, b, acc);
  acc.store(d);
}

// Each thread writes the row and column of its own elements: the tile must be covered exactly once.
[[kernel]] void coordinates(device float* out [[buffer(2)]]) {
  using Matrix = tensor<device float, dextents<int, 2>, tensor_inline>;
  constexpr auto descriptor = matmul2d_descriptor(48, 32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  auto tile = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  for (ushort i = 0; i < tile.get_capacity(); ++i) {
    if (tile.is_valid_element(i)) {
      const auto at = tile.get_multidimensional_index(i);
      out[at[1] * 32 + at[0]] = float(at[1] * 32 + at[0]);
    }
  }
}

#define INSTANTIATE(NAME, FN, ...) template [[host_name(NAME)]] [[kernel]] decltype(FN<__VA_ARGS__>) FN<__VA_ARGS__>;
#define LAYOUTS(NAME, A, B, D)                                     \
  INSTANTIATE(NAME "_nn", to_memory, A, B, D, false, false, false) \
  INSTANTIATE(NAME "_nt", to_memory, A, B, D, false, true, false)  \
  INSTANTIATE(NAME "_tn", to_memory, A, B, D, true, false, false)  \
  INSTANTIATE(NAME "_tt", to_memory, A, B, D, true, true, false)   \
  INSTANTIATE(NAME "_tile", to_tile, A, B, D, false, false, false)

LAYOUTS("float", float, float, float)
LAYOUTS("half", half, half, half)
LAYOUTS("half_float", half, half, float)
LAYOUTS("bfloat", bfloat, bfloat, bfloat)
LAYOUTS("bfloat_float", bfloat, bfloat, float)
LAYOUTS("float_half", float, half, float)
INSTANTIATE("float_relaxed", to_memory, float, float, float, false, false, true)
