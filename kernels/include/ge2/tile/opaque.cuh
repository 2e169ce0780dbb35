// Keeps packed 16-bit elements packed between passes over registers.
//
// NOTE: ptxas recognises that a second pass unpacks the same 16-bit values and keeps the unpacked
// floats instead: twice the registers, spills from 8 vectors on. A zero that it cannot see (a kernel
// argument, another one for each pass) makes the passes different. For bf16 it goes into the selector
// or mask that unpacks, so that no instruction is added.
#pragma once

#include <ge2/types.cuh>

namespace ge2 {

// As lane_value, in a way that depends on `zero`.
template <typename T, int V>
inline compute_t<T> lane_value(const Vec<T, V>& from, int lane, unsigned zero) {
    if constexpr (sizeof(T) == 2 && V % 2 == 0) {
        union Words {
            Vec<T, V> vec;
            unsigned word[V / 2];
        };
        Words words{from};
        words.word[lane / 2] ^= zero;
        return lane_value(words.vec, lane);
    } else {
        return lane_value(from, lane);
    }
}
template <int V>
inline float lane_value(const Vec<bf16, V>& from, int lane, unsigned zero) {
    if constexpr (V % 2 == 0) {
        union Words {
            Vec<bf16, V> vec;
            unsigned word[V / 2];
        };
        const unsigned word = Words{from}.word[lane / 2];
        return __uint_as_float(lane % 2 ? word & (0xffff0000u ^ zero)
                                        : __byte_perm(word, 0u, 0x1044u ^ zero));
    } else {
        return lane_value(from, lane);
    }
}

}  // namespace ge2
