// Every Metal name lives in one namespace per build: kernels are compiled once with a fiber per thread and once with a
// fiber per SIMD group, and both may be linked into one program.
#pragma once

#include <type_traits>

#include "csrc/metal_host/runtime.h"

#if METAL_HOST_LANES == 32
#define METAL_HOST_MSL metal_host_lanes
#elif METAL_HOST_LANES == 1
#define METAL_HOST_MSL metal_host_uniform
#else
#error "METAL_HOST_LANES is 32 (a fiber per thread) or 1 (a fiber per SIMD group)"
#endif

// Metal's address spaces, as types in a build of clang that checks them, else erased. The code runs either way.
#ifdef METAL_HOST_ADDRESS_SPACES
#define METAL_HOST_DEVICE __attribute__((address_space(1)))
#define METAL_HOST_CONSTANT __attribute__((address_space(2)))
#define METAL_HOST_THREADGROUP __attribute__((address_space(3)))
#else
#define METAL_HOST_DEVICE
#define METAL_HOST_CONSTANT
#define METAL_HOST_THREADGROUP
#endif

namespace METAL_HOST_MSL {

using metal_host::Site;

// The type of a value in memory: without const and without its address space.
template <class T>
struct value_in_memory {
  using type = T;
};
#ifdef METAL_HOST_ADDRESS_SPACES
template <class T>
struct value_in_memory<METAL_HOST_DEVICE T> {
  using type = T;
};
template <class T>
struct value_in_memory<METAL_HOST_CONSTANT T> {
  using type = T;
};
template <class T>
struct value_in_memory<METAL_HOST_THREADGROUP T> {
  using type = T;
};
#endif
template <class T>
using value_in_memory_t = std::remove_cv_t<typename value_in_memory<std::remove_cv_t<T>>::type>;

}  // namespace METAL_HOST_MSL
