// Seeded bugs: each bug_* breaks one rule that the host runtime must catch, and its fixed_* twin must pass.
// One threadgroup of 128 threads; A, B and C hold 128 x 128 floats unless the test says otherwise.
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
#include <metal_tensor>

using namespace metal;
using namespace mpp::tensor_ops;

using Matrix = tensor<device float, dextents<int, 2>, tensor_inline>;

// ---- Divergence ----

kernel void bug_barrier_in_half_the_threads(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  shared[thread_index] = 1.0f;
  if (thread_index < 64) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  C[thread_index] = shared[thread_index];
}

kernel void fixed_barrier_in_half_the_threads(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  shared[thread_index] = 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  C[thread_index] = shared[127 - thread_index];
}

kernel void bug_two_barriers_in_one_simdgroup(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  if (thread_index % 2 == 0) {
    threadgroup_barrier(mem_flags::mem_none);
  } else {
    threadgroup_barrier(mem_flags::mem_none);
  }
  C[thread_index] = 1.0f;
}

// Different SIMD groups may reach a barrier at different places.
kernel void fixed_two_barriers_in_one_simdgroup(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  if (simdgroup % 2 == 0) {
    threadgroup_barrier(mem_flags::mem_none);
  } else {
    threadgroup_barrier(mem_flags::mem_none);
  }
  C[thread_index] = 1.0f;
}

kernel void bug_early_exit(device float* C [[buffer(2)]], uint thread_index [[thread_index_in_threadgroup]]) {
  if (thread_index == 100) {
    return;
  }
  threadgroup_barrier(mem_flags::mem_none);
  C[thread_index] = 1.0f;
}

kernel void fixed_early_exit(device float* C [[buffer(2)]], uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup_barrier(mem_flags::mem_none);
  if (thread_index == 100) {
    return;
  }
  C[thread_index] = 1.0f;
}

kernel void bug_multiply_in_half_the_lanes(
    device float* A [[buffer(0)]],
    device float* C [[buffer(2)]],
    uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 a;
  simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(a, A, 8);
  if (lane < 16) {
    simdgroup_multiply_accumulate(c, a, a, c);
  }
  simdgroup_store(c, C, 8);
}

kernel void fixed_multiply_in_half_the_lanes(
    device float* A [[buffer(0)]],
    device float* C [[buffer(2)]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  simdgroup_float8x8 a;
  simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(a, A, 8);
  simdgroup_multiply_accumulate(c, a, a, c);
  simdgroup_store(c, C + 64 * simdgroup, 8);
}

kernel void bug_load_without_one_lane(
    device float* A [[buffer(0)]],
    device float* C [[buffer(2)]],
    uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  if (lane != 7) {
    simdgroup_load(a, A, 8);
  }
  threadgroup_barrier(mem_flags::mem_none);
  simdgroup_store(a, C, 8);
}

kernel void fixed_load_without_one_lane(
    device float* A [[buffer(0)]],
    device float* C [[buffer(2)]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  if (simdgroup != 3) {
    simdgroup_load(a, A, 8);
  }
  threadgroup_barrier(mem_flags::mem_none);
  simdgroup_store(a, C + 64 * simdgroup, 8);
}

kernel void bug_load_from_two_addresses(
    device float* A [[buffer(0)]],
    device float* C [[buffer(2)]],
    uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 a;
  simdgroup_load(a, A + (lane < 16 ? 0 : 8), 8);
  simdgroup_store(a, C, 8);
}

kernel void fixed_load_from_two_addresses(
    device float* A [[buffer(0)]],
    device float* C [[buffer(2)]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  simdgroup_float8x8 a;
  simdgroup_load(a, A + (simdgroup < 2 ? 0 : 8), 8);
  simdgroup_store(a, C + 64 * simdgroup, 8);
}

kernel void bug_run_in_one_simdgroup(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  Matrix a(A, dextents<int, 2>(32, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  if (simdgroup == 0) {
    op.run(a, b, c);
  }
}

// One SIMD group may run on its own, if that is the operation's scope.
kernel void fixed_run_in_one_simdgroup(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  Matrix a(A, dextents<int, 2>(32, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroup> op;
  if (simdgroup == 0) {
    op.run(a, b, c);
  }
}

kernel void bug_run_on_two_tiles(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  Matrix a(A + (simdgroup == 3 ? 32 : 0), dextents<int, 2>(32, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  op.run(a, b, c);
}

kernel void fixed_run_on_two_tiles(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  Matrix a(A + 1024 * simdgroup, dextents<int, 2>(32, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C + 1024 * simdgroup, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroup> op;
  op.run(a, b, c);
}

kernel void bug_scope_of_two_simdgroups(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]]) {
  Matrix a(A, dextents<int, 2>(32, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroups<2>> op;
  op.run(a, b, c);
}

kernel void fixed_scope_of_two_simdgroups(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]]) {
  Matrix a(A, dextents<int, 2>(32, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  op.run(a, b, c);
}

// ---- Tensors ----

kernel void bug_static_slice_outside(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]]) {
  Matrix a(A, dextents<int, 2>(48, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  auto a_slice = a.slice<32, 32>(32, 0);
  op.run(a_slice, b, c);
}

kernel void fixed_static_slice_outside(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]]) {
  Matrix a(A, dextents<int, 2>(64, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  auto a_slice = a.slice<32, 32>(32, 0);
  op.run(a_slice, b, c);
}

kernel void bug_static_k_past_the_end(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]]) {
  Matrix a(A, dextents<int, 2>(20, 32));
  Matrix b(B, dextents<int, 2>(32, 20));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  op.run(a, b, c);
}

kernel void fixed_static_k_past_the_end(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]]) {
  Matrix a(A, dextents<int, 2>(20, 32));
  Matrix b(B, dextents<int, 2>(32, 20));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, static_cast<int>(dynamic_extent));
  matmul2d<descriptor, execution_simdgroups<4>> op;
  op.run(a, b, c);
}

kernel void bug_tile_outside_its_buffer(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]]) {
  Matrix a(A + 128 * 128 - 32 * 32 + 1, dextents<int, 2>(32, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  op.run(a, b, c);
}

kernel void fixed_tile_outside_its_buffer(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]]) {
  Matrix a(A + 128 * 128 - 32 * 32, dextents<int, 2>(32, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  op.run(a, b, c);
}

kernel void bug_slice_two_gibibytes_in(device float* A [[buffer(0)]], device float* C [[buffer(2)]]) {
  Matrix a(A, dextents<int, 2>(32, 1 << 24), array<int, 2>{1, 64});
  auto far = a.slice(0, 1 << 23);
  C[0] = float(far.get_extent(0));
}

kernel void fixed_slice_two_gibibytes_in(
    device float* A [[buffer(0)]],
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  Matrix a(A, dextents<int, 2>(32, 1 << 24), array<int, 2>{1, 64});
  auto near = a.slice(0, (1 << 23) - 1);
  C[thread_index] = float(near.get_extent(0));
}

constant constexpr auto accumulate =
    matmul2d_descriptor(32, 32, 32, false, false, false, matmul2d_descriptor::mode::multiply_accumulate);

kernel void bug_no_is_valid_element(device float* C [[buffer(2)]]) {
  matmul2d<accumulate, execution_simdgroups<4>> op;
  auto acc = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  for (ushort i = 0; i < acc.get_capacity(); ++i) {
    acc[i] = 0.0f;
  }
  Matrix c(C, dextents<int, 2>(32, 32));
  acc.store(c);
}

kernel void fixed_no_is_valid_element(device float* C [[buffer(2)]]) {
  matmul2d<accumulate, execution_simdgroups<4>> op;
  auto acc = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  for (ushort i = 0; i < acc.get_capacity(); ++i) {
    if (acc.is_valid_element(i)) {
      acc[i] = 0.0f;
    }
  }
  Matrix c(C, dextents<int, 2>(32, 32));
  acc.store(c);
}

kernel void bug_cooperative_tensor_not_initialised(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]]) {
  Matrix a(A, dextents<int, 2>(32, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  matmul2d<accumulate, execution_simdgroups<4>> op;
  auto acc = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  op.run(a, b, acc);
  acc.store(c);
}

kernel void fixed_cooperative_tensor_not_initialised(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]]) {
  Matrix a(A, dextents<int, 2>(32, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto multiply = matmul2d_descriptor(32, 32, 32, false, false, false, matmul2d_descriptor::mode::multiply);
  matmul2d<multiply, execution_simdgroups<4>> op;
  auto acc = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  op.run(a, b, acc);
  acc.store(c);
}

kernel void bug_store_of_an_unwritten_tensor(device float* C [[buffer(2)]]) {
  matmul2d<accumulate, execution_simdgroups<4>> op;
  auto acc = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  Matrix c(C, dextents<int, 2>(32, 32));
  acc.store(c);
}

kernel void fixed_store_of_an_unwritten_tensor(device float* C [[buffer(2)]]) {
  matmul2d<accumulate, execution_simdgroups<4>> op;
  auto acc = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  for (ushort i = 0; i < acc.get_capacity(); ++i) {
    if (acc.is_valid_element(i)) {
      acc[i] = 1.0f;
    }
  }
  Matrix c(C, dextents<int, 2>(32, 32));
  acc.store(c);
}

// ---- Memory ----

[[max_total_threads_per_threadgroup(96)]] kernel void bug_threads_over_the_limit(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index] = 1.0f;
}

[[max_total_threads_per_threadgroup(128)]] kernel void fixed_threads_over_the_limit(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index] = 1.0f;
}

kernel void bug_threadgroup_memory_over_the_limit(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float first[8000];
  threadgroup float second[193];
  first[thread_index] = 1.0f;
  second[thread_index] = 1.0f;
  C[thread_index] = first[thread_index] + second[thread_index];
}

kernel void fixed_threadgroup_memory_over_the_limit(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float first[8000];
  threadgroup float second[192];
  first[thread_index] = 1.0f;
  second[thread_index] = 1.0f;
  C[thread_index] = first[thread_index] + second[thread_index];
}

kernel void bug_unbound_buffer(device float* C [[buffer(7)]]) { C[0] = 1.0f; }

kernel void fixed_unbound_buffer(
    device float* C [[buffer(2)]],
    device float* unused [[buffer(7)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index] = 1.0f;
}

// Only a checked dispatch can tell that nothing touches buffer(7).
kernel void unbound_and_not_reached(
    device float* C [[buffer(2)]],
    device float* rest [[buffer(7)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index] = thread_index < 128 ? 1.0f : rest[thread_index];
}

kernel void bug_unbound_operand(device float* A [[buffer(7)]], device float* C [[buffer(2)]]) {
  Matrix a(A, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  op.run(a, a, c);
}

kernel void fixed_unbound_operand(device float* A [[buffer(0)]], device float* C [[buffer(2)]]) {
  Matrix a(A, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  op.run(a, a, c);
}

kernel void bug_read_past_the_end(
    device const float* A [[buffer(0)]],
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index] = A[128 * 128 - 127 + thread_index];
}

kernel void fixed_read_past_the_end(
    device const float* A [[buffer(0)]],
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index] = A[128 * 128 - 128 + thread_index];
}

[[gnu::noinline]] half half_of(uint index) { return half(float(index)); }

kernel void bug_returned_half_past_the_end(
    device half* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index] = half_of(thread_index);
  C[2 * 128 * 128 - 127 + thread_index] = half_of(thread_index);
}

kernel void fixed_returned_half_past_the_end(
    device half* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index] = half_of(thread_index);
  C[2 * 128 * 128 - 128 + thread_index] = half_of(thread_index);
}

[[gnu::noinline]] float4 four_of(uint index) { return float4(float(index)); }

kernel void bug_returned_vector_past_the_end(
    device float4* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index] = four_of(thread_index);
  C[128 * 128 / 4 - 127 + thread_index] = four_of(thread_index);
}

kernel void fixed_returned_vector_past_the_end(
    device float4* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index] = four_of(thread_index);
  C[128 * 128 / 4 - 128 + thread_index] = four_of(thread_index);
}

kernel void bug_write_before_the_start(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[int(thread_index) - 1] = 1.0f;
}

kernel void fixed_write_before_the_start(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[int(thread_index)] = 1.0f;
}

kernel void bug_write_to_a_read_only_buffer(
    device float* A [[buffer(0)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  A[thread_index] = 1.0f;
}

kernel void fixed_write_to_a_read_only_buffer(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index] = 1.0f;
}

kernel void bug_threadgroup_read_past_the_end(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  shared[thread_index] = 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  C[thread_index] = shared[thread_index + 1];
}

kernel void fixed_threadgroup_read_past_the_end(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[129];
  shared[thread_index + 1] = 1.0f;
  if (thread_index == 0) {
    shared[0] = 1.0f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  C[thread_index] = shared[thread_index + 1];
}

kernel void bug_threadgroup_write_past_the_end(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[127];
  shared[thread_index] = 1.0f;
  C[thread_index] = shared[thread_index];
}

kernel void fixed_threadgroup_write_past_the_end(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  shared[thread_index] = 1.0f;
  C[thread_index] = shared[thread_index];
}

kernel void bug_threadgroup_memory_not_written(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  if (thread_index > 0) {
    shared[thread_index] = 1.0f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  C[thread_index] = shared[127 - thread_index];
}

kernel void fixed_threadgroup_memory_not_written(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  shared[thread_index] = thread_index > 0 ? 1.0f : 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  C[thread_index] = shared[127 - thread_index];
}

// The K tail of a tile is zero-filled for one operand only.
kernel void bug_padding_of_one_operand(
    device const float* A [[buffer(0)]],
    device const float* B [[buffer(1)]],
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  constexpr int K = 100;
  threadgroup float a[128];
  threadgroup float b[128];
  const int k = int(thread_index);
  a[k] = k < K ? A[k] : 0.0f;
  if (k < K) {
    b[k] = B[k];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  for (int i = 0; i < 128; ++i) {
    sum += a[i] * b[i];
  }
  C[thread_index] = sum;
}

kernel void fixed_padding_of_one_operand(
    device const float* A [[buffer(0)]],
    device const float* B [[buffer(1)]],
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  constexpr int K = 100;
  threadgroup float a[128];
  threadgroup float b[128];
  const int k = int(thread_index);
  a[k] = k < K ? A[k] : 0.0f;
  b[k] = k < K ? B[k] : 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  for (int i = 0; i < 128; ++i) {
    sum += a[i] * b[i];
  }
  C[thread_index] = sum;
}

// ---- Races ----

kernel void bug_missing_barrier(device float* C [[buffer(2)]], uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  shared[thread_index] = 1.0f;
  C[thread_index] = shared[thread_index ^ 64];
}

kernel void fixed_missing_barrier(device float* C [[buffer(2)]], uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  shared[thread_index] = 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  C[thread_index] = shared[thread_index ^ 64];
}

kernel void bug_mem_none_where_memory_is_shared(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  shared[thread_index] = 1.0f;
  threadgroup_barrier(mem_flags::mem_none);
  C[thread_index] = shared[thread_index ^ 64];
}

kernel void fixed_mem_none_where_memory_is_shared(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  shared[thread_index] = 1.0f;
  threadgroup_barrier(mem_flags::mem_none | mem_flags::mem_threadgroup);
  C[thread_index] = shared[thread_index ^ 64];
}

kernel void bug_second_barrier_missing(
    device const float* A [[buffer(0)]],
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  float sum = 0.0f;
  for (int k = 0; k < 2; ++k) {
    shared[thread_index] = A[128 * k + int(thread_index)];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum += shared[127 - thread_index];
  }
  C[thread_index] = sum;
}

kernel void fixed_second_barrier_missing(
    device const float* A [[buffer(0)]],
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  float sum = 0.0f;
  for (int k = 0; k < 2; ++k) {
    shared[thread_index] = A[128 * k + int(thread_index)];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum += shared[127 - thread_index];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  C[thread_index] = sum;
}

// Waits, but orders no memory: a warning, since GPUs finish a load before they pass a barrier.
kernel void warned_second_barrier_without_memory(
    device const float* A [[buffer(0)]],
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  float sum = 0.0f;
  for (int k = 0; k < 2; ++k) {
    shared[thread_index] = A[128 * k + int(thread_index)];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum += shared[127 - thread_index];
    threadgroup_barrier(mem_flags::mem_none);
  }
  C[thread_index] = sum;
}

kernel void bug_simdgroup_barrier_across_simdgroups(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  shared[thread_index] = 1.0f;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  C[thread_index] = shared[thread_index ^ 64];
}

// Within a SIMD group it is enough, for a read after a write and for a write after many reads.
kernel void fixed_simdgroup_barrier_across_simdgroups(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  shared[thread_index] = 1.0f;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const float sum = shared[thread_index ^ 16] + shared[thread_index / 32 * 32];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  shared[thread_index] = sum;
  C[thread_index] = shared[thread_index];
}

// Halves of one word belong to different threads: no race.
kernel void fixed_neighbouring_halves(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup half shared[128];
  shared[thread_index] = 1.0h;
  C[thread_index] = shared[thread_index];
}

kernel void bug_two_threads_write_one_element(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index / 2] = 1.0f;
}

kernel void fixed_two_threads_write_one_element(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  if (thread_index % 2 == 0) {
    C[thread_index / 2] = 1.0f;
  }
}

kernel void bug_read_of_another_threads_output(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index] = 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  C[128 + thread_index] = C[127 - thread_index];
}

kernel void fixed_read_of_another_threads_output(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[thread_index] = 1.0f;
  threadgroup_barrier(mem_flags::mem_device);
  C[128 + thread_index] = C[127 - thread_index];
}

kernel void bug_refill_before_run_is_done(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[32 * 32];
  using Shared = tensor<threadgroup float, dextents<int, 2>, tensor_inline>;
  for (int i = int(thread_index); i < 32 * 32; i += 128) {
    shared[i] = A[i];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Shared a(shared, dextents<int, 2>(32, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  op.run(a, b, c);
  shared[thread_index] = 0.0f;
}

kernel void fixed_refill_before_run_is_done(
    device float* A [[buffer(0)]],
    device float* B [[buffer(1)]],
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[32 * 32];
  using Shared = tensor<threadgroup float, dextents<int, 2>, tensor_inline>;
  for (int i = int(thread_index); i < 32 * 32; i += 128) {
    shared[i] = A[i];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Shared a(shared, dextents<int, 2>(32, 32));
  Matrix b(B, dextents<int, 2>(32, 32));
  Matrix c(C, dextents<int, 2>(32, 32));
  constexpr auto descriptor = matmul2d_descriptor(32, 32, 32);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  op.run(a, b, c);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  shared[thread_index] = 0.0f;
}

// Run with two threadgroups.
kernel void bug_two_threadgroups_write_one_element(
    device float* C [[buffer(2)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[64 * group.x + thread_index] = 1.0f;
}

kernel void fixed_two_threadgroups_write_one_element(
    device float* C [[buffer(2)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  C[128 * group.x + thread_index] = 1.0f;
}

// The writer is itself among the readers: the message must name another.
kernel void bug_write_among_readers(device float* C [[buffer(2)]], uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  shared[thread_index] = 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float sum = shared[0] + shared[127];
  if (thread_index == 126) {
    shared[0] = sum;
  }
  C[thread_index] = sum;
}

kernel void fixed_write_among_readers(
    device float* C [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  shared[thread_index] = 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float sum = shared[0] + shared[127];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index == 126) {
    shared[0] = sum;
  }
  C[thread_index] = sum;
}
