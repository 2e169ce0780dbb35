// Tiles of A B transposed on tensor cores (mma.sync), from rows that a staging hands out as words of
// two elements: a fragment is made of such words, so that every staging will do.
#pragma once

#include <ge2/ptx/mma.cuh>
#include <ge2/types.cuh>

namespace ge2 {

inline void multiply_pairs(f16, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    ptx::mma_m16n8k16_f16(d, a, b);
}
inline void multiply_pairs(bf16, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    ptx::mma_m16n8k16_bf16(d, a, b);
}

// As ProductSimt, for T of 16 bits. A warp has 16 * kTilesM rows and all columns.
template <typename T, int THREADS, int BM, int BN>
struct ProductMma {
    static constexpr int kTilesM = BM / (THREADS / 32) / 16;
    static constexpr int kTilesN = BN / 8;
    static constexpr int kLanes = 4;
    static constexpr int kRows = 2 * kTilesM;     // 8 apart
    static constexpr int kColumns = 2 * kTilesN;  // pairs, 8 apart

    float sum[kTilesM][kTilesN][4] = {};

    static int row(int q) {
        return static_cast<int>(threadIdx.x) / 32 * (16 * kTilesM) + q * 8
               + static_cast<int>(threadIdx.x) % 32 / 4;
    }
    static int column(int c) { return c / 2 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + c % 2; }

    float& at(int q, int c) { return sum[q / 2][c / 2][q % 2 * 2 + c % 2]; }

    // `length` words of each row, a multiple of 4: half the depth of an mma.
    template <typename Prologue, typename Read>
    void add(Read read, int length) {
        const int lane = static_cast<int>(threadIdx.x) % 32, word = lane % 4;
        for (int i = 0; i < length; i += 8) {
            const bool whole = i + 4 < length;
            unsigned a[kTilesM][4];
#pragma unroll
            for (int m = 0; m < kTilesM; ++m)
#pragma unroll
                for (int part = 0; part < 4; ++part)
                    a[m][part] = part < 2 || whole
                        ? pair<Prologue>(read(row(2 * m + part % 2), i + word + part / 2 * 4)) : 0u;
#pragma unroll
            for (int n = 0; n < kTilesN; ++n) {
                const int r = BM + n * 8 + lane / 4;
                const unsigned b[2] = {__float_as_uint(read(r, i + word)),
                                       whole ? __float_as_uint(read(r, i + word + 4)) : 0u};
#pragma unroll
                for (int m = 0; m < kTilesM; ++m) multiply_pairs(T{}, sum[m][n], a[m], b);
            }
        }
    }

private:
    // Two elements of A behind the prologue, which rounds to their type.
    template <typename Prologue>
    static unsigned pair(float word) {
        if constexpr (Prologue::kNone) {
            return __float_as_uint(word);
        } else {
            union {
                unsigned word;
                Vec<T, 2> lanes;
            } both{__float_as_uint(word)};
#pragma unroll
            for (int i = 0; i < 2; ++i)
                both.lanes[i] = Store<T>::from(Prologue::of(to_compute(both.lanes[i])));
            return both.word;
        }
    }
};

}  // namespace ge2
