// Streaming attention on CUDA cores: a block keeps BM queries in shared memory, and goes through
// the keys and values in tiles of BN. Eight neighbouring lanes share a row's keys and values.
#pragma once

#include <ge2/attention/score.cuh>
#include <ge2/scalar.cuh>
#include <ge2/types.cuh>

namespace ge2 {

// T is stored, C computed in. VEC elements of T can be loaded at once, or one.
template <typename T, typename C, int BM, int BN, int HEAD, int VALUE, int THREADS, int VEC>
struct SimtAttention {
    static constexpr int LANES = 8;
    static constexpr int GROUPS = THREADS / LANES;
    static constexpr int ROWS = BM / GROUPS;  // a thread's: its group's number, + GROUPS, ...
    static constexpr int KEYS = BN / LANES;   // a thread's: its lane's number, + LANES, ...
    static constexpr int W = 16 / sizeof(C);  // elements of one access to shared memory
    using Chunk = Vec<C, W>;
    static constexpr int HEAD_CHUNKS = (HEAD + W - 1) / W;
    static constexpr int VALUE_CHUNKS = (VALUE + W - 1) / W;
    static constexpr int SHARES = (VALUE_CHUNKS + LANES - 1) / LANES;  // chunks of v of a lane
    // Rows are an odd number of chunks apart, so that eight of them lie in different banks.
    static constexpr int HEAD_PITCH = HEAD_CHUNKS | 1;
    static constexpr int VALUE_PITCH = VALUE_CHUNKS;
    static constexpr int WEIGHT_CHUNKS = BN / W;
    static constexpr int WEIGHT_PITCH = WEIGHT_CHUNKS | 1;
    static_assert(BM % GROUPS == 0 && BN % LANES == 0 && BN % W == 0, "whole tiles");

    Chunk *q, *k, *v, *weights;
    int lane, group;
    C peak[ROWS], sum[ROWS];
    C acc[ROWS][SHARES][W];

    explicit SimtAttention(unsigned char* memory)
        : q(reinterpret_cast<Chunk*>(memory)),
          k(q + BM * HEAD_PITCH),
          v(k + BN * HEAD_PITCH),
          weights(v + BN * VALUE_PITCH),
          lane(threadIdx.x % LANES),
          group(threadIdx.x / LANES) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            peak[i] = static_cast<C>(-inf_f32());
            sum[i] = C(0);
#pragma unroll
            for (int j = 0; j < SHARES; ++j) {
#pragma unroll
                for (int e = 0; e < W; ++e) acc[i][j][e] = C(0);
            }
        }
    }

    int row(int i) const { return group + i * GROUPS; }

    // Copies rows of N elements, `step` apart; those from `inside` on become zero.
    template <int TILE, int N, int PITCH>
    static void stage(Chunk* target, const T* source, long long step, int inside) {
        constexpr int CHUNKS = (N + W - 1) / W;
        for (int i = threadIdx.x; i < TILE * CHUNKS; i += THREADS) {
            const int r = i / CHUNKS, c = i % CHUNKS;
            const T* from = source + r * step + c * W;
            Chunk chunk;
            if (VEC == W && N % W == 0 && r < inside) {
                const Vec<T, W> whole = *reinterpret_cast<const Vec<T, W>*>(from);
#pragma unroll
                for (int e = 0; e < W; ++e) chunk[e] = static_cast<C>(to_compute(whole[e]));
            } else {
#pragma unroll
                for (int e = 0; e < W; ++e) {
                    const bool is_there = r < inside && c * W + e < N;
                    chunk[e] = is_there ? static_cast<C>(to_compute(from[e])) : C(0);
                }
            }
            target[r * PITCH + c] = chunk;
        }
    }

    // Attends to keys first, first + 1, ... BN of them. The whole tile counts where is_whole.
    template <typename Score>
    void add_tile(const Score& score, const KeyBand& band, int query, int first, bool is_whole) {
        C s[ROWS][KEYS];
        products(s);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            const KeyRange range = band.of(query + row(i));
            C top = peak[i];
#pragma unroll
            for (int j = 0; j < KEYS; ++j) {
                const int key = first + lane + j * LANES;
                s[i][j] = score(s[i][j], query + row(i), key);
                if (!is_whole && !range.has(key)) s[i][j] = static_cast<C>(-inf_f32());
                top = max_nan(top, s[i][j]);
            }
#pragma unroll
            for (int m = 1; m < LANES; m *= 2) {
                top = max_nan(top, __shfl_xor_sync(0xffffffffu, top, m));
            }
            const C shift = safe_peak(top) * score.fold;
            const C keep = exp2(peak[i] * score.fold - shift);
            peak[i] = top;
            sum[i] *= keep;
            rescale(i, keep);
            C* target = reinterpret_cast<C*>(weights + row(i) * WEIGHT_PITCH);
#pragma unroll
            for (int j = 0; j < KEYS; ++j) {
                const C weight = exp2(fused(s[i][j], score.fold, -shift));
                sum[i] += weight;
                target[lane + j * LANES] = weight;
            }
        }
        __syncwarp();
        add_values();
        __syncwarp();
    }

    // Divides by the sums and stores; rows from `inside` on are not there.
    template <bool MASKED, bool LSE, typename Score>
    void finish(const Score& score, T* y, long long step, C* lse, long long lse_step,
                int inside) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            C total = sum[i];
#pragma unroll
            for (int m = 1; m < LANES; m *= 2) total += __shfl_xor_sync(0xffffffffu, total, m);
            if (row(i) >= inside) continue;
            const bool is_empty = MASKED && total == C(0);
            const C inverse = is_empty ? C(0) : C(1) / total;
#pragma unroll
            for (int j = 0; j < SHARES; ++j) {
                const int first = (lane + j * LANES) * W;
#pragma unroll
                for (int e = 0; e < W; ++e) {
                    if (first + e < VALUE) {
                        y[row(i) * step + first + e] = from_compute<T>(acc[i][j][e] * inverse);
                    }
                }
            }
            if (LSE && lane == 0) {
                const C exponent = safe_peak(peak[i]) * score.fold + log2(total);
                lse[row(i) * lse_step] =
                    is_empty ? static_cast<C>(-inf_f32()) : exponent * C(0.6931471805599453);
            }
        }
    }

private:
    static float fused(float a, float b, float c) { return ::fmaf(a, b, c); }
    static double fused(double a, double b, double c) { return ::fma(a, b, c); }

    void products(C (&s)[ROWS][KEYS]) const {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
#pragma unroll
            for (int j = 0; j < KEYS; ++j) s[i][j] = C(0);
        }
#pragma unroll 2
        for (int c = 0; c < HEAD_CHUNKS; ++c) {
            Chunk a[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; ++i) a[i] = q[row(i) * HEAD_PITCH + c];
#pragma unroll
            for (int j = 0; j < KEYS; ++j) {
                const Chunk b = k[(lane + j * LANES) * HEAD_PITCH + c];
#pragma unroll
                for (int i = 0; i < ROWS; ++i) {
#pragma unroll
                    for (int e = 0; e < W; ++e) s[i][j] = fused(a[i][e], b[e], s[i][j]);
                }
            }
        }
    }

    void rescale(int i, C keep) {
#pragma unroll
        for (int j = 0; j < SHARES; ++j) {
#pragma unroll
            for (int e = 0; e < W; ++e) acc[i][j][e] *= keep;
        }
    }

    void add_values() {
#pragma unroll 1
        for (int c = 0; c < WEIGHT_CHUNKS; ++c) {
            Chunk p[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; ++i) p[i] = weights[row(i) * WEIGHT_PITCH + c];
#pragma unroll
            for (int n = 0; n < W; ++n) {
#pragma unroll
                for (int j = 0; j < SHARES; ++j) {
                    const int chunk = lane + j * LANES;
                    if (VALUE_CHUNKS % LANES && chunk >= VALUE_CHUNKS) continue;
                    const Chunk b = v[(c * W + n) * VALUE_PITCH + chunk];
#pragma unroll
                    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
                        for (int e = 0; e < W; ++e) {
                            acc[i][j][e] = fused(p[i][n], b[e], acc[i][j][e]);
                        }
                    }
                }
            }
        }
    }
};

}  // namespace ge2
