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

const TypeKernels* type_kernels(Dtype dtype) {
  const RowKernels& kernels = row_kernels();
  switch (dtype) {
    case Dtype::float32:
      return &kernels.floats;
    case Dtype::float16:
      return &kernels.halves;
    case Dtype::bfloat16:
      return &kernels.bfloats;
    default:
      return nullptr;
  }
}

}  // namespace mlx_gemm
