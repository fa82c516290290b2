#include "csrc/metal_host/dispatch.h"

// The plain module: nothing observes the kernels' accesses.
extern "C" const metal_host::Module* metal_host_module() {
  static const metal_host::Module module{false, metal_host::has_kernel, metal_host::allows_uniform,
                                         metal_host::run_dispatch};
  return &module;
}
