#include "csrc/backends/cpu/row_kernels.h"

namespace mlx_gemm {

const RowKernels& row_kernels() {
#if defined(__x86_64__)
  switch (cpu_isa()) {
    case Isa::portable:
      break;
    case Isa::avx2:
      return kAvx2RowKernels;
    case Isa::avx512:
    case Isa::avx512_bf16:
    case Isa::amx:
      return kAvx512RowKernels;
  }
#endif
  return kPortableRowKernels;
}

}  // namespace mlx_gemm
