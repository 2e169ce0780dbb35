// Host twin: arithmetic on two 16-bit floats. Products of them are exact in double, and the sum is
// rounded to odd there, so that the rounding to 16 bits is the only one that shows.
#pragma once

#include <ge2/ptx/cvt.cuh>

namespace ge2::ptx {

GE2_INLINE double fma_to_odd(double a, double b, double c) {
    const double product = a * b, sum = product + c;
    const double part = sum - product;
    const double lost = (product - (sum - part)) + (c - part);
    if (lost == 0.0 || !(sum - sum == 0.0)) return sum;
    unsigned long long bits;
    __builtin_memcpy(&bits, &sum, 8);
    if (bits & 1) return sum;
    bits += (lost > 0.0) == (sum > 0.0) ? 1 : -1;
    double odd;
    __builtin_memcpy(&odd, &bits, 8);
    return odd;
}
GE2_INLINE unsigned fma_f16x2(unsigned a, unsigned b, unsigned c) {
    unsigned d = 0;
    for (int i = 0; i < 32; i += 16) {
        const double value = fma_to_odd(f16_to_f32((unsigned short)(a >> i)),
                                        f16_to_f32((unsigned short)(b >> i)),
                                        f16_to_f32((unsigned short)(c >> i)));
        d |= (unsigned)f64_to_f16(value) << i;
    }
    return d;
}
GE2_INLINE unsigned fma_bf16x2(unsigned a, unsigned b, unsigned c) {
    unsigned d = 0;
    for (int i = 0; i < 32; i += 16) {
        const double value = fma_to_odd(bf16_to_f32((unsigned short)(a >> i)),
                                        bf16_to_f32((unsigned short)(b >> i)),
                                        bf16_to_f32((unsigned short)(c >> i)));
        // To float rounding to odd as well: from there to bf16 is the one rounding.
        float narrow = (float)value;
        if ((double)narrow != value && narrow - narrow == 0.f) {
            unsigned word = __float_as_uint(narrow);
            const bool away = __builtin_fabs((double)narrow) > __builtin_fabs(value);
            word = (away ? word - 1 : word) | 1u;
            narrow = __uint_as_float(word);
        }
        d |= (unsigned)f32_to_bf16(narrow) << i;
    }
    return d;
}

}  // namespace ge2::ptx
