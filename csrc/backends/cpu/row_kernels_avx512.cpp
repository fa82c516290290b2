#include <immintrin.h>

#include "csrc/backends/cpu/row_kernels_body.h"

namespace mlx_gemm {
namespace {

struct Avx512 {
  static constexpr int kWidth = 16;
  static constexpr int kSums = 24;

  template <class BITS, class HALVES>
  static BITS widen(const HALVES& x) {
    return (BITS)_mm512_cvtepu16_epi32((__m256i)x);
  }

  template <class HALVES, class BITS>
  static HALVES narrow(const BITS& x) {
    return (HALVES)_mm512_cvtepi32_epi16((__m512i)x);
  }

  template <class FLOATS, class HALVES>
  static FLOATS widen_half(const HALVES& x) {
    return (FLOATS)_mm512_cvtph_ps((__m256i)x);
  }

  template <class HALVES, class FLOATS>
  static HALVES narrow_half(const FLOATS& x) {
    return (HALVES)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
  }
};

}  // namespace

const RowKernels kAvx512RowKernels = RowKernelsOf<Avx512>::table();

}  // namespace mlx_gemm
