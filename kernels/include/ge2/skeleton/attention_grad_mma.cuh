// Gradients of attention on tensor cores: a warp keeps the sums of 16 rows, keys or queries, in
// registers, while the rows of the other kind stream past. Weights are computed again from the
// statistics of the forward pass.
#pragma once

#include <ge2/attention/head_tile.cuh>
#include <ge2/attention/score.cuh>
#include <ge2/gemm/mma_tile.cuh>
#include <ge2/ptx/approx.cuh>

namespace ge2 {

// With queries q, their gradients' d, keys k and values v: own rows are those of k and v, streamed
// ones of q and d, or the other way round. First is the tile of q or k, Second that of d or v;
// STREAMED rows are added at a time. Sums are in units of the scores' factor.
template <typename T, typename OwnFirst, typename OwnSecond, typename First, typename Second,
          int STREAMED, bool BY_KEYS>
struct MmaGradient {
    static constexpr int STEPS = OwnFirst::CHUNKS / 2;   // of 16 elements of a head
    static constexpr int VALUES = OwnSecond::CHUNKS / 2;  // of 16 elements of a value
    static constexpr int TILES = STREAMED / 8;

    int lane, line;             // line: of the warp's first row in the block's tile
    unsigned own_first, own_second;
    float first[STEPS * 2][4];  // gradient of k or q
    float second[BY_KEYS ? VALUES * 2 : 1][4];  // gradient of v

    MmaGradient(unsigned own_first, unsigned own_second)
        : lane(threadIdx.x % 32),
          line(threadIdx.x / 32 * 16),
          own_first(own_first),
          own_second(own_second) {
        clear(first);
        clear(second);
    }

    // own, streamed: numbers of the first rows of the tiles. statistics: by query of its tile,
    // log-sum-exp as an exponent of 2 and the sum of d * y.
    template <typename Score>
    void add_tile(unsigned tile_first, unsigned tile_second, const Vec<float, 2>* statistics,
                  const Score& score, const KeyBand& band, int own, int streamed, bool is_whole) {
        float p[TILES][4], g[TILES][4];
        multiply<OwnFirst, First, STEPS>(p, own_first, tile_first);
        multiply<OwnSecond, Second, VALUES>(g, own_second, tile_second);
#pragma unroll
        for (int n = 0; n < TILES; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int row = line + lane / 4 + e / 2 * 8, column = n * 8 + lane % 4 * 2 + e % 2;
                const int query = BY_KEYS ? streamed + column : own + row;
                const int key = BY_KEYS ? own + row : streamed + column;
                const Vec<float, 2> known = statistics[BY_KEYS ? column : row];
                const float weight = ptx::ex2_approx_ftz(
                    ::fmaf(score(p[n][e], query, key), score.fold, -known[0]));
                p[n][e] = is_whole || band.of(query).has(key) ? weight : 0.f;
                g[n][e] = p[n][e] * (g[n][e] - known[1]);
            }
        }
        add_products<First, STEPS>(first, g, tile_first);
        if constexpr (BY_KEYS) add_products<Second, VALUES>(second, p, tile_second);
    }

    // Stores the rows below `inside`, of N elements, times factor.
    template <int N, bool PAIRS, int TILES_OF>
    void store(const float (&sums)[TILES_OF][4], T* to, long long step, int inside,
               float factor) const {
#pragma unroll
        for (int n = 0; n < TILES_OF; ++n) {
            const int column = n * 8 + lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int row = line + lane / 4 + i * 8;
                if (row >= inside) continue;
                T* at = to + row * step + column;
                const float low = sums[n][2 * i] * factor, high = sums[n][2 * i + 1] * factor;
                if (PAIRS) {
                    if (column < N) *reinterpret_cast<unsigned*>(at) = pack2<T>(low, high);
                } else {
                    if (column < N) at[0] = from_compute<T>(low);
                    if (column + 1 < N) at[1] = from_compute<T>(high);
                }
            }
        }
    }

private:
    template <int N>
    static void clear(float (&sums)[N][4]) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[n][e] = 0.f;
        }
    }

    // Products of the warp's rows with all streamed ones.
    template <typename Own, typename Tile, int K>
    void multiply(float (&to)[TILES][4], unsigned own, unsigned tile) const {
        clear(to);
#pragma unroll
        for (int k = 0; k < K; ++k) {
            unsigned a[4];
            Own::read_rows(a, own, line, k, lane);
#pragma unroll
            for (int n = 0; n < TILES / 2; ++n) {
                unsigned b[4];
                Tile::read_columns(b, tile, n * 16, k, lane);
                const unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
                mma_k16(T{}, to[2 * n], a, low);
                mma_k16(T{}, to[2 * n + 1], a, high);
            }
        }
    }

    // sums += x * tile, x over (own row, streamed row).
    template <typename Tile, int COLUMNS>
    void add_products(float (&sums)[COLUMNS * 2][4], const float (&x)[TILES][4],
                      unsigned tile) const {
#pragma unroll
        for (int k = 0; k < TILES / 2; ++k) {
            const unsigned a[4] = {pack2<T>(x[2 * k][0], x[2 * k][1]),
                                   pack2<T>(x[2 * k][2], x[2 * k][3]),
                                   pack2<T>(x[2 * k + 1][0], x[2 * k + 1][1]),
                                   pack2<T>(x[2 * k + 1][2], x[2 * k + 1][3])};
#pragma unroll
            for (int n = 0; n < COLUMNS; ++n) {
                unsigned b[4];
                Tile::read_transposed(b, tile, k * 16, n, lane);
                const unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
                mma_k16(T{}, sums[2 * n], a, low);
                mma_k16(T{}, sums[2 * n + 1], a, high);
            }
        }
    }
};

}  // namespace ge2
