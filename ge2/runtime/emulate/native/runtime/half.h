// Values of the 16-bit and 8-bit floating types, and of 8-bit integers.
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

// Types of bytes: 0 s8, 1 u8, 2 e4m3, 3 e5m2.
inline float byte_value(u8 bits, u32 type) {
  if (type == 0) return static_cast<signed char>(bits);
  if (type == 1) return bits;
  if (type == 3) return f16_value(static_cast<u16>(bits << 8));
  if ((bits & 0x7f) == 0x7f) return f16_value(0x7fff);
  return f16_value(static_cast<u16>((bits & 0x80) << 8 | (bits & 0x7f) << 7)) * 256.0f;
}

}  // namespace emu
