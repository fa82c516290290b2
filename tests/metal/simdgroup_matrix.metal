// Uses of simdgroup_matrix that the ladder does not make: layouts, transposes, types.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

using namespace metal;

kernel void diagonal(device float* C [[buffer(2)]]) {
  simdgroup_float8x8 m(3.0f);
  simdgroup_store(m, C, 8);
}

kernel void transposed_copy(device const float* A [[buffer(0)]], device float* C [[buffer(2)]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, A, 20, ulong2(3, 2), true);
  simdgroup_store(m, C, 8);
}

kernel void store_transposed(device const float* A [[buffer(0)]], device float* C [[buffer(2)]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, A, 8);
  simdgroup_store(m, C, 24, ulong2(8, 1), true);
}

kernel void product(
    device const float* A [[buffer(0)]],
    device const float* B [[buffer(1)]],
    device float* C [[buffer(2)]]) {
  simdgroup_float8x8 a;
  simdgroup_float8x8 b;
  simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(100.0f);
  simdgroup_load(a, A, 8);
  simdgroup_load(b, B, 8);
  simdgroup_multiply(c, a, b);
  simdgroup_store(c, C, 8);
}

// Each lane writes its two elements where the layout of real GPUs has them.
kernel void lane_layout(
    device const float* A [[buffer(0)]],
    device float* C [[buffer(2)]],
    uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, A, 8);
  const uint quad = lane / 4;
  const uint row = (quad & 4) + (lane / 2) % 4;
  const uint col = (quad & 2) * 2 + lane % 2 * 2;
  C[row * 8 + col] = m.thread_elements()[0];
  C[row * 8 + col + 1] = m.thread_elements()[1];
}

template <typename T>
[[kernel]] void mixed_product(
    device const T* A [[buffer(0)]],
    device const T* B [[buffer(1)]],
    device float* C [[buffer(2)]]) {
  simdgroup_matrix<T, 8, 8> a;
  simdgroup_matrix<T, 8, 8> b;
  simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  simdgroup_load(a, A, 8);
  simdgroup_load(b, B, 8);
  simdgroup_multiply_accumulate(c, a, b, c);
  simdgroup_store(c, C, 8);
}

template [[host_name("mixed_product_half")]] [[kernel]] decltype(mixed_product<half>) mixed_product<half>;
template [[host_name("mixed_product_bfloat")]] [[kernel]] decltype(mixed_product<bfloat>) mixed_product<bfloat>;
