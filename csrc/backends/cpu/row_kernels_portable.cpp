#include "csrc/backends/cpu/row_kernels_body.h"
#include "csrc/metal_host/half.h"

namespace mlx_gemm {
namespace {

struct Portable : PartsByCopy {
  static constexpr int kWidth = 4;
  static constexpr int kSums = 16;

  template <class TO, class FROM>
  static TO convert(const FROM& x) {
    TO result;
    for (int i = 0; i < kWidth; ++i) {
      result[i] = x[i];
    }
    return result;
  }

  template <class BITS, class HALVES>
  static BITS widen(const HALVES& x) {
    return convert<BITS>(x);
  }

  template <class HALVES, class BITS>
  static HALVES narrow(const BITS& x) {
    return convert<HALVES>(x);
  }

  template <class FLOATS, class HALVES>
  static FLOATS widen_half(const HALVES& x) {
    FLOATS wide;
    for (int i = 0; i < kWidth; ++i) {
      wide[i] = metal_host::float_from_half_bits(x[i]);
    }
    return wide;
  }

  template <class HALVES, class FLOATS>
  static HALVES narrow_half(const FLOATS& x) {
    HALVES narrow;
    for (int i = 0; i < kWidth; ++i) {
      narrow[i] = metal_host::half_bits(x[i]);
    }
    return narrow;
  }
};

}  // namespace

const RowKernels kPortableRowKernels = RowKernelsOf<Portable>::table();

}  // namespace mlx_gemm
