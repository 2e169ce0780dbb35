// Gradients of attention on CUDA cores, in tiles of 16 rows: as MmaGradient, in the compute type.
#pragma once

#include <ge2/attention/gradient.cuh>
#include <ge2/scalar.cuh>
#include <ge2/types.cuh>

namespace ge2 {

// 256 threads, one for each pair of an own and a streamed row.
template <typename T, typename C, int HEAD, int VALUE, bool BY_KEYS>
struct SimtGradient {
    static constexpr int TILE = 16;
    static constexpr int HEAD_PITCH = HEAD + 1;
    static constexpr int VALUE_PITCH = VALUE + 1;
    static constexpr int HEAD_SHARE = (HEAD + TILE - 1) / TILE;  // elements of a thread
    static constexpr int VALUE_SHARE = (VALUE + TILE - 1) / TILE;
    // Values of the compute type in shared memory.
    static constexpr int SIZE = 2 * TILE * (HEAD_PITCH + VALUE_PITCH + TILE + 1);

    int row, column;
    C *own_first, *own_second, *tile_first, *tile_second, *weights, *slopes;
    C first[HEAD_SHARE], second[BY_KEYS ? VALUE_SHARE : 1];

    explicit SimtGradient(C* memory)
        : row(threadIdx.x / TILE),
          column(threadIdx.x % TILE),
          own_first(memory),
          own_second(own_first + TILE * HEAD_PITCH),
          tile_first(own_second + TILE * VALUE_PITCH),
          tile_second(tile_first + TILE * HEAD_PITCH),
          weights(tile_second + TILE * VALUE_PITCH),
          slopes(weights + TILE * (TILE + 1)) {
#pragma unroll
        for (int j = 0; j < HEAD_SHARE; ++j) first[j] = C(0);
#pragma unroll
        for (int j = 0; j < (BY_KEYS ? VALUE_SHARE : 1); ++j) second[j] = C(0);
    }

    // Copies rows of N elements; those from `inside` on become zero.
    template <int N>
    static void load(C* to, const T* from, long long step, int inside) {
        for (int i = threadIdx.x; i < TILE * N; i += TILE * TILE) {
            const int r = i / N, e = i % N;
            to[r * (N + 1) + e] =
                r < inside ? static_cast<C>(to_compute(from[r * step + e])) : C(0);
        }
    }

    // See MmaGradient.
    template <typename Score>
    void add_tile(const Statistics<C>* statistics, const Score& score, const KeyBand& band, int own,
                  int streamed) {
        const int query = BY_KEYS ? streamed + column : own + row;
        const int key = BY_KEYS ? own + row : streamed + column;
        const Statistics<C> known = statistics[BY_KEYS ? column : row];
        const C s = product<HEAD>(own_first, tile_first);
        const C g = product<VALUE>(own_second, tile_second);
        const C weight = exp2(score(s, query, key) * score.fold - known[0]);
        const C p = band.of(query).has(key) ? weight : C(0);
        weights[row * (TILE + 1) + column] = p;
        slopes[row * (TILE + 1) + column] = p * (g - known[1]);
        __syncthreads();
        add<HEAD>(first, slopes, tile_first);
        if constexpr (BY_KEYS) add<VALUE>(second, weights, tile_second);
    }

    // Stores rows below `inside`, of N elements, times factor.
    template <int N, int SHARE>
    void store(const C (&sums)[SHARE], T* to, long long step, int inside, C factor) const {
        if (row >= inside) return;
#pragma unroll
        for (int j = 0; j < SHARE; ++j) {
            const int e = column + j * TILE;
            if (e < N) to[row * step + e] = from_compute<T>(sums[j] * factor);
        }
    }

private:
    template <int N>
    C product(const C* own, const C* tile) const {
        C sum = C(0);
#pragma unroll 8
        for (int e = 0; e < N; ++e) sum += own[row * (N + 1) + e] * tile[column * (N + 1) + e];
        return sum;
    }

    template <int N, int SHARE>
    void add(C (&sums)[SHARE], const C* factors, const C* tile) const {
#pragma unroll 4
        for (int c = 0; c < TILE; ++c) {
            const C factor = factors[row * (TILE + 1) + c];
#pragma unroll
            for (int j = 0; j < SHARE; ++j) {
                const int e = column + j * TILE;
                if (e < N) sums[j] += factor * tile[c * (N + 1) + e];
            }
        }
    }
};

}  // namespace ge2
