// Streaming attention on tensor cores with mma.sync: a warp keeps 16 * TILES queries, their weighted
// sums and statistics in registers. Scores become weights, and weights the first operand of the
// second product, without leaving them.
#pragma once

#include <ge2/attention/head_tile.cuh>
#include <ge2/attention/score.cuh>
#include <ge2/gemm/mma_tile.cuh>
#include <ge2/ptx/approx.cuh>
#include <ge2/tile/vector.cuh>

namespace ge2 {

// K and V are HeadTiles of BN lines, Q one of the block's queries. GPUs before sm_80 multiply in
// HALF_STEPS.
template <typename T, typename Q, typename K, typename V, int BN, int TILES, bool HALF_STEPS>
struct MmaAttention {
    static constexpr int STEPS = K::CHUNKS / 2;    // of 16 elements of a head
    static constexpr int COLUMNS = V::CHUNKS / 2;  // of 16 elements of a value
    // Fragments of the queries stay in registers where there is room beside scores and sums.
    static constexpr bool HELD = TILES * (STEPS * 4 + BN / 2 + COLUMNS * 8) < 160;
    static constexpr int FRAGMENTS = TILES * ((HELD ? STEPS * 4 : 0) + BN / 2 + COLUMNS * 8);

    int lane, line;  // line: of the warp's first query in the block's tile
    unsigned queries;
    unsigned held[HELD ? TILES : 1][HELD ? STEPS : 1][4];
    float peak[TILES][2], sum[TILES][2];
    float acc[TILES][COLUMNS * 2][4];

    MmaAttention(unsigned queries, int line)
        : lane(threadIdx.x % 32), line(line), queries(queries) {
#pragma unroll
        for (int m = 0; m < TILES; ++m) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                peak[m][i] = -inf_f32();
                sum[m][i] = 0.f;
            }
#pragma unroll
            for (int n = 0; n < COLUMNS * 2; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) acc[m][n][e] = 0.f;
            }
        }
    }

    // The number, in the block's tile, of this thread's query i of 16-row tile m.
    int row(int m, int i) const { return line + m * 16 + i * 8 + lane / 4; }

    // To be called once the queries have arrived.
    void hold_queries() {
        if constexpr (HELD) {
#pragma unroll
            for (int m = 0; m < TILES; ++m) {
#pragma unroll
                for (int k = 0; k < STEPS; ++k) {
                    Q::read_rows(held[m][k], queries, line + m * 16, k, lane);
                }
            }
        }
    }

    // Attends to keys first, first + 1, ... BN of them; all of them count where is_whole.
    template <typename Score>
    void add_tile(unsigned keys, unsigned values, const Score& score, const KeyBand& band,
                  int query, int first, bool is_whole) {
        float s[TILES][BN / 8][4];
        products(s, keys);
        if constexpr (!Score::PLAIN) {
#pragma unroll
            for (int m = 0; m < TILES; ++m) {
#pragma unroll
                for (int n = 0; n < BN / 8; ++n) {
                    modify_fragment(s[m][n], score, query + row(m, 0),
                                    first + n * 8 + lane % 4 * 2);
                }
            }
        }
        if (!is_whole) {
#pragma unroll
            for (int m = 0; m < TILES; ++m) {
                const KeyRange ranges[2] = {band.of(query + row(m, 0)), band.of(query + row(m, 1))};
#pragma unroll
                for (int n = 0; n < BN / 8; ++n) {
                    forbid_fragment(s[m][n], ranges, first + n * 8 + lane % 4 * 2);
                }
            }
        }
        weigh(s, score.fold);
        add_values(s, values);
    }

    // Completes the sums over the four lanes of a row, and divides; LSE goes to lse.
    template <bool MASKED, bool LSE>
    void normalise(float fold, float* lse, long long step, int inside) {
#pragma unroll
        for (int m = 0; m < TILES; ++m) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float total = sum[m][i];
                total += __shfl_xor_sync(0xffffffffu, total, 1);
                total += __shfl_xor_sync(0xffffffffu, total, 2);
                const bool is_empty = MASKED && total == 0.f;
                const float inverse = is_empty ? 0.f : ptx::rcp_approx(total);
#pragma unroll
                for (int n = 0; n < COLUMNS * 2; ++n) {
                    acc[m][n][i * 2] *= inverse;
                    acc[m][n][i * 2 + 1] *= inverse;
                }
                if (LSE && lane % 4 == 0 && row(m, i) < inside) {
                    const float exponent = safe_peak(peak[m][i]) * fold + ptx::lg2_approx(total);
                    lse[row(m, i) * step] = is_empty ? -inf_f32() : exponent * 0.693147181f;
                }
            }
        }
    }

    // Stores the warp's rows by way of shared memory, laid out as Y; VEC elements at once, or one.
    template <typename Y, int VALUE, int VEC>
    void store(unsigned char* staged, T* y, long long step, int inside) const {
#pragma unroll
        for (int m = 0; m < TILES; ++m) {
#pragma unroll
            for (int n = 0; n < COLUMNS * 2; ++n) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    *reinterpret_cast<unsigned*>(staged + Y::at(row(m, i), n) + lane % 4 * 4) =
                        pack2<T>(acc[m][n][i * 2], acc[m][n][i * 2 + 1]);
                }
            }
        }
        __syncwarp();
        constexpr int CHUNKS = (VALUE + 7) / 8;
        for (int c = lane; c < TILES * 16 * CHUNKS; c += 32) {
            const int r = line + c / CHUNKS, first = c % CHUNKS * 8;
            if (r >= inside) break;
            const Vec<T, 8> chunk = *reinterpret_cast<const Vec<T, 8>*>(staged + Y::at(r, first / 8));
            store_lanes<VEC == 8 ? kUnit : kStrided>(chunk, y, r * step + first, VALUE - first,
                                                     1LL);
        }
    }

private:
    using Scores = float[TILES][BN / 8][4];

    void products(Scores& s, unsigned keys) const {
#pragma unroll
        for (int m = 0; m < TILES; ++m) {
#pragma unroll
            for (int n = 0; n < BN / 8; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) s[m][n][e] = 0.f;
            }
        }
#pragma unroll
        for (int k = 0; k < STEPS; ++k) {
            unsigned a[TILES][4];
#pragma unroll
            for (int m = 0; m < TILES; ++m) {
                if constexpr (HELD) {
#pragma unroll
                    for (int e = 0; e < 4; ++e) a[m][e] = held[m][k][e];
                } else {
                    Q::read_rows(a[m], queries, line + m * 16, k, lane);
                }
            }
#pragma unroll
            for (int n = 0; n < BN / 16; ++n) {
                unsigned b[4];
                K::read_columns(b, keys, n * 16, k, lane);
                const unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
                for (int m = 0; m < TILES; ++m) {
                    multiply_fragments<T, HALF_STEPS>(s[m][2 * n], a[m], low);
                    multiply_fragments<T, HALF_STEPS>(s[m][2 * n + 1], a[m], high);
                }
            }
        }
    }

    // Turns scores into weights relative to the new peaks, and what there is to the same.
    void weigh(Scores& s, float fold) {
#pragma unroll
        for (int m = 0; m < TILES; ++m) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float top = peak[m][i];
#pragma unroll
                for (int n = 0; n < BN / 8; ++n) {
                    top = max_nan(top, max_nan(s[m][n][i * 2], s[m][n][i * 2 + 1]));
                }
                top = max_nan(top, __shfl_xor_sync(0xffffffffu, top, 1));
                top = max_nan(top, __shfl_xor_sync(0xffffffffu, top, 2));
                const float shift = safe_peak(top) * fold;
                const float keep = ptx::ex2_approx_ftz(peak[m][i] * fold - shift);
                peak[m][i] = top;
                float own = 0.f;
#pragma unroll
                for (int n = 0; n < BN / 8; ++n) {
#pragma unroll
                    for (int e = i * 2; e < i * 2 + 2; ++e) {
                        s[m][n][e] = ptx::ex2_approx_ftz(::fmaf(s[m][n][e], fold, -shift));
                        own += s[m][n][e];
                    }
                }
                sum[m][i] = sum[m][i] * keep + own;
#pragma unroll
                for (int n = 0; n < COLUMNS * 2; ++n) {
                    acc[m][n][i * 2] *= keep;
                    acc[m][n][i * 2 + 1] *= keep;
                }
            }
        }
    }

    void add_values(const Scores& s, unsigned values) {
#pragma unroll
        for (int k = 0; k < BN / 16; ++k) {
            unsigned a[TILES][4];
#pragma unroll
            for (int m = 0; m < TILES; ++m) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const float(&x)[4] = s[m][2 * k + h];
                    a[m][2 * h] = pack2<T>(x[0], x[1]);
                    a[m][2 * h + 1] = pack2<T>(x[2], x[3]);
                }
            }
#pragma unroll
            for (int n = 0; n < COLUMNS; ++n) {
                unsigned b[4];
                V::read_transposed(b, values, k * 16, n, lane);
                const unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
                for (int m = 0; m < TILES; ++m) {
                    multiply_fragments<T, HALF_STEPS>(acc[m][2 * n], a[m], low);
                    multiply_fragments<T, HALF_STEPS>(acc[m][2 * n + 1], a[m], high);
                }
            }
        }
    }
};

}  // namespace ge2
