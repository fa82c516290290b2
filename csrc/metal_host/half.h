// float16 and bfloat16 as bit patterns, and their conversions. IEEE 754 round to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace metal_host {

constexpr float float_from_bfloat_bits(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

constexpr uint16_t bfloat_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return uint16_t((bits >> 16) | 0x0040u);  // quiet NaN: rounding could turn its payload into infinity
  }
  const uint32_t round = 0x7fffu + ((bits >> 16) & 1u);
  return uint16_t((bits + round) >> 16);
}

constexpr float float_from_half_bits(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0x1f) {
    return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  }
  if (exponent == 0) {
    const float magnitude = float(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

constexpr uint16_t half_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = uint16_t((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return uint16_t(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) {  // 65520: rounds to infinity
    return uint16_t(sign | 0x7c00u);
  }
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, in units of 2^-24
    // Adding 1/2 aligns the unit with float's last bit, so that the addition itself rounds to nearest even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  const uint32_t round = 0xfffu + ((magnitude >> 13) & 1u);
  return uint16_t(sign | ((magnitude - 0x38000000u + round) >> 13));
}

}  // namespace metal_host
