#include "csrc/metal_host/dispatch.h"

// The plain module: nothing watches the kernels' accesses.
extern "C" const metal_host::Module* metal_host_module() {
  using namespace metal_host;
  static const Module module{false, has_kernel, allows_uniform,
                             [](const Dispatch& dispatch) { return run_dispatch(dispatch, false); }};
  return &module;
}
