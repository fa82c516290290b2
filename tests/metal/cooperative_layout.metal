// Where each lane's slots lie in the cooperative tensors of one hardware operation, as the kernel is told.
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#include <metal_stdlib>

using namespace metal;
using namespace mpp::tensor_ops;

template <class Tensor>
void write_map(const thread Tensor& tensor, device int* map, uint lane) {
  for (ushort i = 0; i < 16; ++i) {
    device int* at = map + (lane * 16 + i) * 2;
    at[0] = at[1] = -1;
    if (i < tensor.get_capacity() && tensor.is_valid_element(i)) {
      const auto index = tensor.get_multidimensional_index(i);
      at[0] = index[0];
      at[1] = index[1];
    }
  }
}

template <class T, bool Transpose, bool Relaxed>
[[kernel]] void lane_maps(
    device int* left [[buffer(0)]],
    device int* right [[buffer(1)]],
    device int* destination [[buffer(2)]],
    uint lane [[thread_index_in_simdgroup]]) {
  constexpr auto descriptor = matmul2d_descriptor(16, 32, 16, Transpose, Transpose, Relaxed);
  matmul2d<descriptor, execution_simdgroup> op;
  auto a = op.template get_left_input_cooperative_tensor<T, T, float>();
  auto b = op.template get_right_input_cooperative_tensor<T, T, float>();
  auto d = op.template get_destination_cooperative_tensor<
      remove_addrspace_t<decltype(a)>, remove_addrspace_t<decltype(b)>, float>();
  write_map(a, left, lane);
  write_map(b, right, lane);
  write_map(d, destination, lane);
}

#define LANE_MAPS(NAME, ...) \
  template [[host_name("lane_maps_" NAME)]] [[kernel]] decltype(lane_maps<__VA_ARGS__>) lane_maps<__VA_ARGS__>;
LANE_MAPS("relaxed_half", half, false, true)
LANE_MAPS("relaxed_half_transposed", half, true, true)
LANE_MAPS("relaxed_float", float, false, true)
LANE_MAPS("strict_float", float, false, false)
LANE_MAPS("strict_float_transposed", float, true, false)
