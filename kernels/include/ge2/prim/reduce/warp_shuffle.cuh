/*--- toml
primitive = "reduce"
summary = "butterfly of shuffles within 1 to 32 lanes; every lane gets the result"
numerics = "butterfly"
scopes = ["warp"]
---*/
#pragma once

#include <ge2/tile/words.cuh>

namespace ge2::reduce::warp_shuffle {

// All 32 lanes of a warp take part; groups of THREADS lanes reduce apart from each other.
template <int THREADS>
struct Group {
    static_assert(THREADS >= 1 && THREADS <= 32 && (THREADS & (THREADS - 1)) == 0, "lanes");
    static constexpr int scratch_bytes(int) { return 0; }

    explicit Group(unsigned char*) {}

    // After the last use.
    void leave() {}

    // Merges lower lanes first, so that all lanes compute the very same bits even where a merge of
    // contracted multiply-adds is not symmetric.
    template <typename T, typename Merge>
    T all(T value, Merge merge) {
        const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
        for (int mask = 1; mask < THREADS; mask *= 2) {
            const T other = shuffle_xor(value, mask);
            const bool upper = (lane & mask) != 0;
            value = merge(choose(upper, other, value), choose(upper, value, other));
        }
        return value;
    }

    // For merges that are symmetric bit by bit: sums, maxima.
    template <typename T, typename Merge>
    T all_symmetric(T value, Merge merge) {
#pragma unroll
        for (int mask = 1; mask < THREADS; mask *= 2) value = merge(value, shuffle_xor(value, mask));
        return value;
    }
};

}  // namespace ge2::reduce::warp_shuffle
