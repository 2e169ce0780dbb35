// Weights of four bits, two in a byte, the earlier one along k in the low half: w = (q - zero) *
// scale, with a scale and a zero point for each group of neighbours along k.
#pragma once

#include <ge2/ptx/packed.cuh>
#include <ge2/types.cuh>

namespace ge2 {

constexpr unsigned NO_ZERO_POINT = 8;

// Zero points of a row lie two in a byte as well; without them the middle of the range is zero.
inline unsigned zero_point(const unsigned char* row, int group) {
    return row == nullptr ? NO_ZERO_POINT : row[group / 2] >> group % 2 * 4 & 15u;
}

// Codes become floats by their bits alone: written into the low end of the mantissa of BIASED, a
// number whose spacing is one, q is BIASED + q. Taking BIASED + zero away is exact.
template <typename T>
struct Nibbles;

template <>
struct Nibbles<f16> {
    static constexpr unsigned BIASED = 0x64006400u, ONE = 0x3c003c00u;
    static unsigned fma(unsigned a, unsigned b, unsigned c) { return ptx::fma_f16x2(a, b, c); }
};

template <>
struct Nibbles<bf16> {
    static constexpr unsigned BIASED = 0x43004300u, ONE = 0x3f803f80u;
    static unsigned fma(unsigned a, unsigned b, unsigned c) { return ptx::fma_bf16x2(a, b, c); }
};

// -(BIASED + zero), twice.
template <typename T>
inline unsigned negative_zero_point(unsigned zero) {
    return (Nibbles<T>::BIASED | 0x80008000u) | zero * 0x00010001u;
}

// q - zero of the two codes in a byte of a word.
template <typename T>
inline unsigned centred_pair(unsigned word, unsigned byte, unsigned negative_zero) {
    const unsigned select = byte | (4u + byte) << 8;  // bytes 0 and 2 of the result
    const unsigned spread = __byte_perm(word, word >> 4, select | select << 4);
    return Nibbles<T>::fma(spread & 0x000f000fu | Nibbles<T>::BIASED, Nibbles<T>::ONE,
                           negative_zero);
}

}  // namespace ge2
