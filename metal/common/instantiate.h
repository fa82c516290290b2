// Explicit instantiation of kernel templates under their registry names.
#pragma once

#define GEMM_INSTANTIATE(NAME, ...) template [[host_name(#NAME)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;

// A production kernel for each pair of types: TEMPLATE<operands, result, ...>. On the host half and bfloat are classes,
// which cannot lie in an address space: where those are kept as types, float stands for all.
#ifdef METAL_HOST_ADDRESS_SPACES
#define GEMM_INSTANTIATE_TYPES(NAME, TEMPLATE, ...) \
  GEMM_INSTANTIATE(NAME##_float32_float32, TEMPLATE<float, float, __VA_ARGS__>)
#else
#define GEMM_INSTANTIATE_TYPES(NAME, TEMPLATE, ...)                                 \
  GEMM_INSTANTIATE(NAME##_float32_float32, TEMPLATE<float, float, __VA_ARGS__>)     \
  GEMM_INSTANTIATE(NAME##_float16_float16, TEMPLATE<half, half, __VA_ARGS__>)       \
  GEMM_INSTANTIATE(NAME##_float16_float32, TEMPLATE<half, float, __VA_ARGS__>)      \
  GEMM_INSTANTIATE(NAME##_bfloat16_bfloat16, TEMPLATE<bfloat, bfloat, __VA_ARGS__>) \
  GEMM_INSTANTIATE(NAME##_bfloat16_float32, TEMPLATE<bfloat, float, __VA_ARGS__>)
#endif
