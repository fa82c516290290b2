#include "csrc/backends/cpu/bfloat_panels.h"

#include "csrc/backends/cpu/isa.h"

namespace mlx_gemm {

const PanelKernels* panel_kernels() {
#if defined(__x86_64__)
  static const PanelKernels amx = [] {
    PanelKernels kernels = kAvx512PanelKernels;
    kernels.multiply = multiply_panels_amx;
    kernels.outruns_memory = true;
    return kernels;
  }();
  switch (cpu_isa()) {
    case Isa::amx:
      return &amx;
    case Isa::avx512_bf16:
      return &kAvx512PanelKernels;
    default:
      break;
  }
#endif
  return nullptr;
}

}  // namespace mlx_gemm
