// What a warp stores at once: 16 rows of 128 or 64 bytes of the output, swizzled in as many bytes,
// for the copy engine to write out.
#pragma once

#include <ge2/ptx/ldst.cuh>
#include <ge2/ptx/stmatrix.cuh>
#include <ge2/types.cuh>

namespace ge2 {

// Results of two neighbouring columns; of int results the bits.
struct Pair {
    float lo, hi;
};

template <typename T>
struct BoxValue {
    template <typename V>
    static float of(V v) {
        return from_compute<float>(v);
    }
};
template <>
struct BoxValue<int> {
    static float of(int v) { return __int_as_float(v); }
};

template <typename T, int ROW_BYTES = 128>
struct StoreBox {
    static constexpr int COLUMNS = ROW_BYTES / sizeof(T);
    static constexpr unsigned BYTES = 16 * ROW_BYTES;

    // pairs(group, lower) gives this lane's results in a group of eight columns: those of columns
    // lane % 4 * 2 and the next, in row lane / 4, or with lower in the row eight further down.
    template <typename Pairs>
    static void fill(unsigned box, int lane, const Pairs& pairs) {
        if constexpr (sizeof(T) == 2) {
            const int row = lane % 16;
#pragma unroll
            for (int two = 0; two < COLUMNS / 16; ++two) {
                unsigned packed[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const Pair pair = pairs(two * 2 + i / 2, i % 2);
                    packed[i] = pack2<T>(pair.lo, pair.hi);
                }
                const int turn = row * ROW_BYTES / 128 & (ROW_BYTES / 16 - 1);
                const int chunk = (two * 2 + lane / 16) ^ turn;
                ptx::stmatrix_x4(box + row * ROW_BYTES + chunk * 16, packed);
            }
        } else {
            static_assert(ROW_BYTES == 128, "floats are stored by 128 bytes");
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int group = i / 2, row = lane / 4 + i % 2 * 8;
                const Pair pair = pairs(group, i % 2);
                const int chunk = (group * 2 + lane % 4 / 2) ^ (row & 7);
                ptx::store_shared_8(box + row * 128 + chunk * 16 + lane % 2 * 8,
                                    make_float2(pair.lo, pair.hi));
            }
        }
    }
};

}  // namespace ge2
