// Host twin: conversions with the GPU's rounding (to nearest even, NaN to 0x7fff).
#pragma once

extern "C" {
float ge2emu_f16_to_f32(unsigned short bits);
unsigned short ge2emu_f64_to_f16(double value);
}

namespace ge2::ptx {

GE2_INLINE float f16_to_f32(unsigned short bits) { return ge2emu_f16_to_f32(bits); }
GE2_INLINE unsigned short f64_to_f16(double value) { return ge2emu_f64_to_f16(value); }
GE2_INLINE unsigned short f32_to_f16(float value) { return ge2emu_f64_to_f16((double)value); }
GE2_INLINE float bf16_to_f32(unsigned short bits) {
    return __uint_as_float((unsigned)bits << 16);
}
GE2_INLINE unsigned short f32_to_bf16(float value) {
    const unsigned word = __float_as_uint(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (unsigned short)((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}
GE2_INLINE unsigned pack_f16x2(float lo, float hi) {
    return (unsigned)f32_to_f16(lo) | (unsigned)f32_to_f16(hi) << 16;
}
GE2_INLINE unsigned pack_bf16x2(float lo, float hi) {
    return (unsigned)f32_to_bf16(lo) | (unsigned)f32_to_bf16(hi) << 16;
}
GE2_INLINE float f32_to_tf32(float value) {
    const unsigned word = __float_as_uint(value);
    if ((word & 0x7f800000u) == 0x7f800000u) return value;
    return __uint_as_float((word + 0x1000u) & 0xffffe000u);
}

}  // namespace ge2::ptx
