#include <immintrin.h>

#include "csrc/backends/cpu/row_kernels_body.h"

namespace mlx_gemm {
namespace {

struct Avx512 {
  static constexpr int kWidth = 16;
  static constexpr int kSums = 24;

  static __mmask16 first(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }

  template <class VECTOR>
  static VECTOR load_part(const float* from, int64_t count) {
    return (VECTOR)_mm512_maskz_loadu_ps(first(count), from);
  }
  template <class VECTOR>
  static VECTOR load_part(const uint16_t* from, int64_t count) {
    return (VECTOR)_mm256_maskz_loadu_epi16(first(count), from);
  }

  template <class VECTOR>
  static void store_part(const VECTOR& v, float* to, int64_t count) {
    _mm512_mask_storeu_ps(to, first(count), (__m512)v);
  }
  template <class VECTOR>
  static void store_part(const VECTOR& v, uint16_t* to, int64_t count) {
    _mm256_mask_storeu_epi16(to, first(count), (__m256i)v);
  }

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
