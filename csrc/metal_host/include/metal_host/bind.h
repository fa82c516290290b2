// What translated kernels (tools/metal_to_host.py) use in place of Metal's attributes.
#pragma once

#include <metal_stdlib>

namespace METAL_HOST_MSL {

// A buffer argument; one that is absent need not be bound: its function constant is false, or the kernel never names
// it.
struct BoundPointer {
  void* address;
  explicit BoundPointer(int slot, bool present = true)
      : address(present ? metal_host::bound_buffer(slot) : metal_host::absent_argument()) {}
  template <class T>
  operator T*() const {
    return (T*)address;  // also into an address space, which static_cast cannot
  }
};

struct BoundReference : BoundPointer {
  using BoundPointer::BoundPointer;
  template <class T>
  operator T&() const {
    return *(T*)address;
  }
};

// A built-in index, in whichever of Metal's types the kernel declares it.
struct BoundIndex {
  metal_host::Size3 value;
  explicit BoundIndex(metal_host::Size3 value) : value(value) {}
  explicit BoundIndex(uint32_t value) : value{value, 0, 0} {}
  operator uint() const { return value.x; }
  operator ushort() const { return ushort(value.x); }
  operator uint2() const { return {value.x, value.y}; }
  operator uint3() const { return {value.x, value.y, value.z}; }
  operator ushort2() const { return {ushort(value.x), ushort(value.y)}; }
  operator ushort3() const { return {ushort(value.x), ushort(value.y), ushort(value.z)}; }
};

inline BoundIndex threadgroup_position_in_grid() { return BoundIndex(metal_host::thread_ids().threadgroup_position); }
inline BoundIndex threadgroups_per_grid() { return BoundIndex(metal_host::thread_ids().threadgroups); }
inline BoundIndex threads_per_threadgroup() { return BoundIndex(metal_host::thread_ids().threads); }
inline BoundIndex simdgroup_index_in_threadgroup() { return BoundIndex(metal_host::thread_ids().simdgroup); }
inline BoundIndex thread_position_in_threadgroup() { return BoundIndex(metal_host::thread_ids().position); }
inline BoundIndex thread_index_in_threadgroup() { return BoundIndex(metal_host::thread_ids().index); }
inline BoundIndex thread_index_in_simdgroup() { return BoundIndex(metal_host::thread_ids().lane); }
inline BoundIndex thread_position_in_grid() {
  const metal_host::ThreadIds ids = metal_host::thread_ids();
  return BoundIndex(metal_host::Size3{ids.threadgroup_position.x * ids.threads.x + ids.position.x,
                                      ids.threadgroup_position.y * ids.threads.y + ids.position.y,
                                      ids.threadgroup_position.z * ids.threads.z + ids.position.z});
}

// constant T name [[function_constant(id)]];
template <class T>
struct FunctionConstant {
  int id;
  operator T() const {
    bool defined;
    return T(metal_host::function_constant(id, &defined));
  }
};

template <class T>
bool is_function_constant_defined(const FunctionConstant<T>& constant) {
  bool defined;
  metal_host::function_constant(constant.id, &defined);
  return defined;
}

template <class T>
METAL_HOST_THREADGROUP T& threadgroup_object(const void* key, Site site = Site::current()) {
  const metal_host::VariableDeclaration declaration{key, sizeof(T), sizeof(std::remove_all_extents_t<T>)};
  return *(METAL_HOST_THREADGROUP T*)metal_host::threadgroup_variable(declaration, site);
}

}  // namespace METAL_HOST_MSL

#define METAL_HOST_REGISTER(ID, NAME, ...)        \
  static const metal_host::KernelRegistration ID{ \
      metal_host::KernelEntry{NAME, METAL_HOST_LANES, [] { __VA_ARGS__(); }, metal_host::Site::current()}};

// A kernel that asks for a lane exists only in the build with a fiber per thread.
#define METAL_HOST_REGISTER_UNIFORM METAL_HOST_REGISTER
#if METAL_HOST_LANES == 32
#define METAL_HOST_REGISTER_LANES METAL_HOST_REGISTER
#else
#define METAL_HOST_REGISTER_LANES(...)
#endif
