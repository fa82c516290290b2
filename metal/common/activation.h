// Activations of the epilogue, in float. Metal has no erf.
#pragma once

#include <metal_stdlib>

#include "metal/shared/params.h"

namespace mlx_gemm {

// Largest error 1.5e-7. Coefficients: Chebyshev fits of erf(x)/x in x^2 below 1, and of -log(erfc(x)) from 1 to 4,
// where erf becomes 1 in float.
inline float error_function(float x) {
  const float a = metal::min(metal::abs(x), 4.0f);
  if (a < 1.0f) {
    const float u = x * x;
    float sum = -9.673590284364764e-06f;
    sum = metal::fma(sum, u, 1.1268253729213029e-04f);
    sum = metal::fma(sum, u, -8.484396385028958e-04f);
    sum = metal::fma(sum, u, 5.221053492277861e-03f);
    sum = metal::fma(sum, u, -2.6865437626838684e-02f);
    sum = metal::fma(sum, u, 0.11283782869577408f);
    sum = metal::fma(sum, u, -0.37612637877464294f);
    sum = metal::fma(sum, u, 1.128379225730896f);
    return x * sum;
  }
  float sum = -1.6140616025950294e-06f;
  sum = metal::fma(sum, a, 4.559062290354632e-05f);
  sum = metal::fma(sum, a, -5.927695310674608e-04f);
  sum = metal::fma(sum, a, 4.740222357213497e-03f);
  sum = metal::fma(sum, a, -2.636471763253212e-02f);
  sum = metal::fma(sum, a, 0.10997824370861053f);
  sum = metal::fma(sum, a, 0.6319370865821838f);
  sum = metal::fma(sum, a, 1.1301666498184204f);
  sum = metal::fma(sum, a, -3.0321296071633697e-04f);
  const float tail = metal::exp(-sum);
  return x < 0.0f ? tail - 1.0f : 1.0f - tail;
}

// 0.707... is 1 / sqrt(2), 0.797... is sqrt(2 / pi).
inline float activated(float x, int activation) {
  switch (activation) {
    case kActivationRelu:
      return x > 0.0f || metal::isnan(x) ? x : 0.0f;
    case kActivationGelu:
      return 0.5f * x * (1.0f + error_function(x * 0.7071067812f));
    case kActivationGeluTanh:
      return 0.5f * x * (1.0f + metal::tanh(0.7978845608f * metal::fma(0.044715f * x * x, x, x)));
    case kActivationSilu:
      return x / (1.0f + metal::exp(-x));
    default:
      return x;
  }
}

}  // namespace mlx_gemm
