// Host twin: conversions between float and the 8-bit floating types.
#pragma once

#include <ge2/ptx/cvt.cuh>

namespace ge2::ptx {

GE2_INLINE float e5m2_to_f32(unsigned char bits) {
    return f16_to_f32(static_cast<unsigned short>(bits << 8));  // the upper half of an f16
}

GE2_INLINE float e4m3_to_f32(unsigned char bits) {
    // As an f16 with an exponent of one bit more: 2^8 too small, subnormals included.
    const float value = f16_to_f32(static_cast<unsigned short>((bits & 0x80) << 8 |
                                                               (bits & 0x7f) << 7)) * 256.f;
    return (bits & 0x7f) == 0x7f ? __uint_as_float(0x7fffffffu) : value;
}

// The code of a float without sign: MANTISSA bits, numbers below 2^LEAST are subnormal, the largest
// is MOST.
template <int MANTISSA, int LEAST>
GE2_INLINE unsigned char narrow_f8(float value, float most) {
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

GE2_INLINE unsigned char f32_to_e4m3(float value) {
    return narrow_f8<3, -6>(value, 448.f);
}

GE2_INLINE unsigned char f32_to_e5m2(float value) {
    return narrow_f8<2, -14>(value, 57344.f);
}

}  // namespace ge2::ptx
