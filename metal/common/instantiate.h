// Explicit instantiation of a kernel template under its registry name.
#pragma once

#define GEMM_INSTANTIATE(NAME, ...) template [[host_name(#NAME)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
