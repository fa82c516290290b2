#include <immintrin.h>

#include "csrc/backends/cpu/row_kernels_body.h"

namespace mlx_gemm {
namespace {

struct Avx2 : PartsByCopy {
  static constexpr int kWidth = 8;
  static constexpr int kSums = 10;

  template <class BITS, class HALVES>
  static BITS widen(const HALVES& x) {
    return (BITS)_mm256_cvtepu16_epi32((__m128i)x);
  }

  template <class HALVES, class BITS>
  static HALVES narrow(const BITS& x) {
    const __m256i integers = (__m256i)x;
    return (HALVES)_mm_packus_epi32(_mm256_castsi256_si128(integers), _mm256_extracti128_si256(integers, 1));
  }

  template <class FLOATS, class HALVES>
  static FLOATS widen_half(const HALVES& x) {
    return (FLOATS)_mm256_cvtph_ps((__m128i)x);
  }

  template <class HALVES, class FLOATS>
  static HALVES narrow_half(const FLOATS& x) {
    return (HALVES)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
  }
};

}  // namespace

const RowKernels kAvx2RowKernels = RowKernelsOf<Avx2>::table();

}  // namespace mlx_gemm
