// Conversions between float and the 8-bit floating types: to nearest even, what is beyond the
// largest finite value becomes that value, infinities too; a NaN stays one.
#pragma once

#include <ge2/ptx/cvt.cuh>

namespace ge2::ptx {

inline float e5m2_to_f32(unsigned char bits) {
    return f16_to_f32(static_cast<unsigned short>(bits << 8));  // the upper half of an f16
}

inline float e4m3_to_f32(unsigned char bits) {
    // As an f16 with an exponent of one bit more: 2^8 too small, subnormals included.
    const float value = f16_to_f32(static_cast<unsigned short>((bits & 0x80) << 8 |
                                                               (bits & 0x7f) << 7)) * 256.f;
    return (bits & 0x7f) == 0x7f ? __uint_as_float(0x7fffffffu) : value;
}

// The code of a float without sign: MANTISSA bits, numbers below 2^LEAST are subnormal, the largest
// is MOST.
template <int MANTISSA, int LEAST>
inline unsigned char narrow_f8(float value, float most) {
    const unsigned word = __float_as_uint(value);
    const unsigned sign = word >> 24 & 0x80u;
    if (value != value) return static_cast<unsigned char>(0x7fu);
    float size = __uint_as_float(word & 0x7fffffffu);
    size = size > most ? most : size;
    // A subnormal is a multiple of 2^(LEAST - MANTISSA), the spacing of floats above `grid`.
    const float grid = __uint_as_float((127u + 23 + LEAST - MANTISSA) << 23);
    const float least = __uint_as_float((127u + LEAST) << 23);
    unsigned code;
    if (size < least) {
        code = __float_as_uint(size + grid) - __float_as_uint(grid);
    } else {
        constexpr int DROPPED = 23 - MANTISSA;
        unsigned bits = __float_as_uint(size);
        bits += (1u << (DROPPED - 1)) - 1 + (bits >> DROPPED & 1u);
        code = (bits >> DROPPED) - ((126u + LEAST) << MANTISSA);
    }
    return static_cast<unsigned char>(sign | code);
}

inline unsigned char f32_to_e4m3(float value) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(value));
    return static_cast<unsigned char>(pair);
#else
    return narrow_f8<3, -6>(value, 448.f);
#endif
}

inline unsigned char f32_to_e5m2(float value) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(value));
    return static_cast<unsigned char>(pair);
#else
    return narrow_f8<2, -14>(value, 57344.f);
#endif
}

}  // namespace ge2::ptx
