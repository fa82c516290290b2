// What the lanes of a SIMD group tell each other, and the rest of the language that kernels of others need.
#include <metal_simdgroup>
#include <metal_stdlib>

using namespace metal;

// One row of 32 results per function.
kernel void simd_functions(device int* out [[buffer(2)]], uint lane [[thread_index_in_simdgroup]]) {
  const int x = int(lane) + 1;
  const int down = simd_shuffle_down(x, 8);
  const int up = simd_shuffle_up(x, 8);
  int row = 0;
  out[32 * row++ + lane] = simd_shuffle(x, ushort(31 - lane));
  out[32 * row++ + lane] = simd_shuffle_xor(x, 5);
  out[32 * row++ + lane] = lane < 24 ? down : 0;
  out[32 * row++ + lane] = lane >= 8 ? up : 0;
  out[32 * row++ + lane] = simd_shuffle_rotate_down(x, 3);
  out[32 * row++ + lane] = simd_shuffle_and_fill_down(x, -x, 4);
  out[32 * row++ + lane] = simd_broadcast(x, 7);
  out[32 * row++ + lane] = simd_sum(x);
  out[32 * row++ + lane] = simd_max(x);
  out[32 * row++ + lane] = simd_prefix_exclusive_sum(x);
  out[32 * row++ + lane] = simd_prefix_inclusive_sum(x);
}

// Lanes that have left are not waited for, and not counted.
kernel void sum_of_the_rest(device int* out [[buffer(2)]], uint lane [[thread_index_in_simdgroup]]) {
  if (lane % 2 == 0) {
    return;
  }
  out[lane] = simd_sum(int(lane));
}

kernel void bug_simd_sum_in_half_the_lanes(device int* out [[buffer(2)]], uint lane [[thread_index_in_simdgroup]]) {
  int sum = 0;
  if (lane < 16) {
    sum = simd_sum(1);
  }
  simdgroup_barrier(mem_flags::mem_none);
  out[lane] = sum;
}

// Run on a grid of threads that cuts the last threadgroups.
kernel void count_threads(device int* out [[buffer(2)]], uint2 at [[thread_position_in_grid]]) {
  out[at.y * 40 + at.x] += 1;
}

constant bool has_source [[function_constant(3)]];

kernel void optional_argument(
    device float* out [[buffer(2)]],
    const device float* source [[buffer(4), function_constant(has_source)]]) {
  out[0] = has_source ? source[0] : 7.0f;
}

// 2048 + 1 is no half, so the sum stays what it was; in float it would not.
kernel void arithmetic(device float* out [[buffer(2)]]) {
  half h = 2048.0h;
  h += 1;
  out[0] = h;
  out[1] = h + 1.0f;
  bfloat b = 256;
  b = b + b * bfloat(0.001f);
  out[2] = b;
  const short2 difference = short2(5, 3) - short2(1, 2);
  out[3] = dot(float4(1, 2, 3, 4), float4(difference.x, difference.y, 0, 1));
  out[4] = as_type<float>(0x40490fdbu);
  out[5] = numeric_limits<half>::max();
  out[6] = select(1.0f, 2.0f, isnan(numeric_limits<bfloat>::quiet_NaN()));
  out[7] = precise::sqrt(clamp(20.0f, 0.0f, 16.0f)) + max(abs(-3), 2);
}
