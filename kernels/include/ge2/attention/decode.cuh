// Attention of few query rows over many keys, for one warp: keys and values go straight from global
// memory into mma fragments, the keys on the 16-wide axis, the query rows on the 8-wide one.
#pragma once

#include <ge2/attention/score.cuh>
#include <ge2/gemm/mma_tile.cuh>
#include <ge2/gemm/operand.cuh>
#include <ge2/ptx/approx.cuh>
#include <ge2/ptx/ldst.cuh>
#include <ge2/ptx/movmatrix.cuh>

namespace ge2 {

// A lane's fragments of two rows, 8 apart, of HEAD elements: 16 bytes at a time. The order within 32
// elements is permuted, in the same way for keys and queries.
template <int HEAD, typename T>
inline void load_fragments(unsigned (&to)[HEAD / 16][4], const T* upper, const T* lower, int lane) {
#pragma unroll
    for (int c = 0; c < HEAD / 32; ++c) {
        const uint4 a = ptx::load_nc_16(upper + c * 32 + lane % 4 * 8);
        const uint4 b = ptx::load_nc_16(lower + c * 32 + lane % 4 * 8);
        const unsigned words[8] = {a.x, b.x, a.y, b.y, a.z, b.z, a.w, b.w};
#pragma unroll
        for (int w = 0; w < 8; ++w) to[c * 2 + w / 4][w % 4] = words[w];
    }
    if constexpr (HEAD % 32 != 0) {
        constexpr int LAST = HEAD / 32 * 32;
        const uint2 a = *reinterpret_cast<const uint2*>(upper + LAST + lane % 4 * 4);
        const uint2 b = *reinterpret_cast<const uint2*>(lower + LAST + lane % 4 * 4);
        const unsigned words[4] = {a.x, b.x, a.y, b.y};
#pragma unroll
        for (int w = 0; w < 4; ++w) to[LAST / 16][w] = words[w];
    }
}

// A lane's elements of four rows: fragment m holds in [r] the elements element_of(m), and the next,
// of row r.
template <int HEAD, typename T>
inline void load_neighbours(unsigned (&to)[HEAD / 16][4], const T* const (&rows)[4], int lane) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int h = 0; h < HEAD / 64; ++h) {
            const uint4 x = ptx::load_nc_16(rows[r] + h * 64 + lane / 4 * 8);
            to[h * 4][r] = x.x;
            to[h * 4 + 1][r] = x.y;
            to[h * 4 + 2][r] = x.z;
            to[h * 4 + 3][r] = x.w;
        }
        if constexpr (HEAD % 64 >= 32) {
            constexpr int PAIR = HEAD / 64 * 64;
            const uint2 x = *reinterpret_cast<const uint2*>(rows[r] + PAIR + lane / 4 * 4);
            to[PAIR / 16][r] = x.x;
            to[PAIR / 16 + 1][r] = x.y;
        }
        if constexpr (HEAD % 32 != 0) {
            constexpr int LAST = HEAD / 32 * 32;
            to[LAST / 16][r] = *reinterpret_cast<const unsigned*>(rows[r] + LAST + lane / 4 * 2);
        }
    }
}

// Where fragment m of load_neighbours starts within the row.
template <int HEAD>
constexpr int element_of(int m, int lane) {
    const int start = m * 16;
    if (start < HEAD / 64 * 64) return m / 4 * 64 + lane / 4 * 8 + m % 4 * 2;
    if (start < HEAD / 32 * 32) return HEAD / 64 * 64 + lane / 4 * 4 + m % 2 * 2;
    return start + lane / 4 * 2;
}

// TILES * 8 query rows of one key head against the keys that a warp is given. A lane has the rows
// 8 i + lane % 4 * 2 + c, c = 0 and 1. Scores are exponents of 2.
template <typename T, int D, int DV, int TILES>
struct DecodeWarp {
    // Keys and values of the next tile are asked for as soon as those of this one are used. Where
    // there are no registers for that, keys and values of a tile take turns.
    static constexpr bool TURNS = D + DV > 256;

    int lane;
    unsigned q[TILES][D / 16][2];
    unsigned k[D / 16][4];
    unsigned v[DV / 16][4];
    float out[DV / 16][TILES][4] = {};
    float most[TILES][2];
    float sum[TILES][2] = {};

    // row_of(r) is query row r.
    template <typename RowOf>
    DecodeWarp(int lane_of_warp, RowOf row_of) : lane(lane_of_warp) {
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            const T* row = row_of(i * 8 + lane / 4);
            unsigned pair[D / 16][4];
            load_fragments<D>(pair, row, row, lane);
#pragma unroll
            for (int c = 0; c < D / 16; ++c) {
                q[i][c][0] = pair[c][0];
                q[i][c][1] = pair[c][2];
            }
            most[i][0] = most[i][1] = -inf_f32();
        }
    }

    // Takes the keys [first, first + 16), [first + step, ...), ... below end. A page is what
    // cache.page(key) answers; it is asked for a tile ahead. score(product, i, c, key) is the score
    // of row c of tile i, -inf where the key is forbidden.
    template <typename Cache, typename Score>
    void run(const Cache& cache, const Score& score, int first, int step, int end) {
        if (first >= end) return;
        auto page = cache.page(first);
        auto ahead = cache.page(first + step < end ? first + step : first);
        if (!TURNS) {
            load_keys(cache, page, first, end);
            load_values(cache, page, first, end);
        }
        for (int key = first; key < end; key += step) {
            const int next = key + step;
            const bool prefetches = !TURNS && next < end;
            float p[TILES][4] = {};
            if (TURNS) load_keys(cache, page, key, end);
            multiply_keys(p);
            if (prefetches) load_keys(cache, ahead, next, end);
            soften(p, score, key, end);
            if (TURNS) load_values(cache, page, key, end);
            multiply_values(p);
            if (prefetches) load_values(cache, ahead, next, end);
            page = ahead;
            if (next + step < end) ahead = cache.page(next + step);
        }
    }

private:
    // Keys behind the last repeat it: their weights are zero.
    template <typename Cache, typename Page>
    void load_keys(const Cache& cache, Page page, int key, int end) {
        const int last = end - 1;
        load_fragments<D>(k, cache.key(lesser(key + lane / 4, last), page),
                          cache.key(lesser(key + lane / 4 + 8, last), page), lane);
    }

    template <typename Cache, typename Page>
    void load_values(const Cache& cache, Page page, int key, int end) {
        const T* from[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            const int row = key + lane % 4 * 2 + r % 2 + r / 2 * 8;
            from[r] = cache.value(lesser(row, end - 1), page);
        }
        load_neighbours<DV>(v, from, lane);
    }

    void multiply_keys(float (&scores)[TILES][4]) {
#pragma unroll
        for (int c = 0; c < D / 16; ++c) {
#pragma unroll
            for (int i = 0; i < TILES; ++i) mma_k16(T{}, scores[i], k[c], q[i][c]);
        }
    }

    // Scores become weights. The sums are rescaled only where a maximum has grown.
    template <typename Score>
    void soften(float (&p)[TILES][4], const Score& score, int key0, int end) {
        bool grown = false;
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int key = key0 + lane / 4 + e / 2 * 8;
                p[i][e] = key < end ? score(p[i][e], i, e % 2, key) : -inf_f32();
                grown |= p[i][e] > most[i][e % 2];
            }
        }
        if (__any_sync(0xffffffffu, grown)) rescale(p);
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                p[i][e] = ptx::ex2_approx_ftz(p[i][e] - safe_peak(most[i][e % 2]));
                sum[i][e % 2] += p[i][e];
            }
        }
    }

    void rescale(const float (&scores)[TILES][4]) {
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                float found = fmaxf(most[i][c], fmaxf(scores[i][c], scores[i][c + 2]));
#pragma unroll
                for (int other = 4; other < 32; other *= 2) {
                    found = fmaxf(found, __shfl_xor_sync(0xffffffffu, found, other));
                }
                const float shrink = ptx::ex2_approx_ftz(most[i][c] - safe_peak(found));
                most[i][c] = found;
                sum[i][c] *= shrink;
#pragma unroll
                for (int m = 0; m < DV / 16; ++m) {
                    out[m][i][c] *= shrink;
                    out[m][i][c + 2] *= shrink;
                }
            }
        }
    }

    void multiply_values(const float (&p)[TILES][4]) {
        unsigned weights[TILES][2];
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            weights[i][0] = ptx::movmatrix_trans(pack2<T>(p[i][0], p[i][1]));
            weights[i][1] = ptx::movmatrix_trans(pack2<T>(p[i][2], p[i][3]));
        }
#pragma unroll
        for (int m = 0; m < DV / 16; ++m) {
            // Neighbouring keys of one element share a register.
            const unsigned a[4] = {__byte_perm(v[m][0], v[m][1], 0x5410),
                                   __byte_perm(v[m][0], v[m][1], 0x7632),
                                   __byte_perm(v[m][2], v[m][3], 0x5410),
                                   __byte_perm(v[m][2], v[m][3], 0x7632)};
#pragma unroll
            for (int i = 0; i < TILES; ++i) mma_k16(T{}, out[m][i], a, weights[i]);
        }
    }
};

}  // namespace ge2
