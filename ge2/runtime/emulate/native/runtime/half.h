// Values of the 16-bit floating types.
#pragma once

#include <cstring>

#include "emu.h"

namespace emu {

inline float bf16_value(u16 bits) {
  const u32 word = static_cast<u32>(bits) << 16;
  float f;
  std::memcpy(&f, &word, 4);
  return f;
}

inline float f16_value(u16 bits) {
  const u32 sign = static_cast<u32>(bits & 0x8000) << 16;
  const u32 exponent = bits >> 10 & 31, mantissa = bits & 1023u;
  u32 word;
  if (exponent == 31) {
    word = sign | 0x7f800000u | mantissa << 13;
  } else if (exponent) {
    word = sign | (exponent + 112) << 23 | mantissa << 13;
  } else {
    const float f = static_cast<float>(mantissa) * 0x1p-24f;
    std::memcpy(&word, &f, 4);
    word |= sign;
  }
  float f;
  std::memcpy(&f, &word, 4);
  return f;
}

}  // namespace emu
