// Keeps packed 16-bit elements packed between passes over registers.
//
// NOTE: ptxas recognises that a second pass unpacks the same bf16 values and keeps the unpacked
// floats instead: twice the registers, spills from 8 vectors on. An exclusive or with a zero that
// it cannot see (a kernel argument, another one for each pass) makes the passes different; it is
// absorbed by the shift or mask that unpacks.
#pragma once

#include <ge2/types.cuh>

namespace ge2 {

template <typename T, int V>
inline Vec<T, V> opaque(const Vec<T, V>& from, unsigned zero) {
    if constexpr (sizeof(T) == 2 && V % 2 == 0) {
        union Words {
            Vec<T, V> vec;
            unsigned word[V / 2];
        };
        Words words{from};
#pragma unroll
        for (int i = 0; i < V / 2; ++i) words.word[i] ^= zero;
        return words.vec;
    } else {
        return from;
    }
}

}  // namespace ge2
