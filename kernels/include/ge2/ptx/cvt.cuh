// Conversions between float and the 16-bit floating types; rounding is to nearest even.
#pragma once

namespace ge2::ptx {

inline float f16_to_f32(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

inline unsigned short f32_to_f16(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

inline unsigned short f64_to_f16(double value) {
    unsigned short bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value));
    return bits;
}

inline float bf16_to_f32(unsigned short bits) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

inline unsigned short f32_to_bf16(float value) {
#if __CUDA_ARCH__ >= 800
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    // The instruction needs sm_80; it makes every NaN 0x7fff.
    const unsigned word = __float_as_uint(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return static_cast<unsigned short>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
#endif
}

// lo goes into bits 0-15, hi into bits 16-31.
inline unsigned pack_f16x2(float lo, float hi) {
#if __CUDA_ARCH__ >= 800
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
#else
    return static_cast<unsigned>(f32_to_f16(lo)) | (static_cast<unsigned>(f32_to_f16(hi)) << 16);
#endif
}

inline unsigned pack_bf16x2(float lo, float hi) {
#if __CUDA_ARCH__ >= 800
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
#else
    return static_cast<unsigned>(f32_to_bf16(lo)) | (static_cast<unsigned>(f32_to_bf16(hi)) << 16);
#endif
}

// Rounds to tf32 (10 bits of mantissa) with ties away from zero, as tensor cores want their input.
inline float f32_to_tf32(float value) {
    unsigned word;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(value));
    return __uint_as_float(word);
}

}  // namespace ge2::ptx
