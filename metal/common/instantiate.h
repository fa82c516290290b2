// Explicit instantiation of kernel templates under their registry names.
#pragma once

#define GEMM_INSTANTIATE(NAME, ...) template [[host_name(#NAME)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;

// A production kernel for each pair of types: TEMPLATE<operands, result, ...>.
#define GEMM_INSTANTIATE_TYPES(NAME, TEMPLATE, ...)                                 \
  GEMM_INSTANTIATE(NAME##_float32_float32, TEMPLATE<float, float, __VA_ARGS__>)     \
  GEMM_INSTANTIATE(NAME##_float16_float16, TEMPLATE<half, half, __VA_ARGS__>)       \
  GEMM_INSTANTIATE(NAME##_float16_float32, TEMPLATE<half, float, __VA_ARGS__>)      \
  GEMM_INSTANTIATE(NAME##_bfloat16_bfloat16, TEMPLATE<bfloat, bfloat, __VA_ARGS__>) \
  GEMM_INSTANTIATE(NAME##_bfloat16_float32, TEMPLATE<bfloat, float, __VA_ARGS__>)
