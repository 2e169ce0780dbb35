// Rows that are normalised on their way into a product.
#pragma once

#include <ge2/tile/vector.cuh>

namespace ge2 {

// What a norm multiplies by and adds; steps are in elements.
struct NormParameters {
    const void* scale;
    const void* shift;
    long long scale_step, shift_step;
};

// ROWS rows of a matrix of k columns at a time, by one warp. A lane keeps its share of each row,
// CHUNKS accesses of 16 bytes, in registers: mean and variance are two passes over the same values,
// so that the variance is a sum of squares of differences and loses nothing to a large mean.
// CENTRED: the mean is subtracted (layer norm). ALIGNED: whole accesses of x; PARAMETERS: of scale
// and shift.
template <typename T, int CHUNKS, int ROWS, bool CENTRED, bool SHIFTED, bool ALIGNED,
          bool PARAMETERS>
struct NormRows {
    static constexpr int V = 16 / sizeof(T);
    using Chunk = Vec<T, V>;

    float v[ROWS][CHUNKS][V];

    static int column(int chunk, int lane) { return (chunk * 32 + lane) * V; }

    // Reads rows from x on; those from rows_left on become zero, as do columns from k on.
    void load(const T* x, long long pitch, long long step, int rows_left, int k, int lane) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                const int inside = r < rows_left ? k - column(c, lane) : 0;
                const long long at = r * pitch + column(c, lane) * step;
                Chunk chunk;
                load_lanes<ALIGNED ? kUnit : kStrided>(chunk, x, at, inside, step);
#pragma unroll
                for (int e = 0; e < V; ++e) v[r][c][e] = to_compute(chunk[e]);
            }
        }
    }

    void normalise(int k, float epsilon, int lane) {
        float sums[ROWS];
        if constexpr (CENTRED) {
            // Differences to the first element are summed: those of neighbours are exact, so that
            // the mean is as good as the spread of the row wants, not as its size allows.
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                subtract(r, __shfl_sync(~0u, v[r][0][0], 0), k, lane);
            }
            add_up(sums, [](float x) { return x; });
#pragma unroll
            for (int r = 0; r < ROWS; ++r) subtract(r, sums[r] / static_cast<float>(k), k, lane);
        }
        add_up(sums, [](float x) { return x * x; });
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float inverse = 1.f / ::sqrtf(sums[r] / static_cast<float>(k) + epsilon);
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
                for (int e = 0; e < V; ++e) v[r][c][e] *= inverse;
            }
        }
    }

    // Calls put(row, column, chunk) with what is stored of each of this lane's chunks.
    template <typename Put>
    void finish(const NormParameters& parameters, int k, int lane, Put put) const {
        constexpr int MODE = PARAMETERS ? kUnit : kStrided;
        const T* scale = static_cast<const T*>(parameters.scale);
        const T* shift = static_cast<const T*>(parameters.shift);
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            const int first = column(c, lane);
            Chunk factors, addends = {};
            load_lanes<MODE>(factors, scale, first * parameters.scale_step, k - first,
                             parameters.scale_step);
            if constexpr (SHIFTED) {
                load_lanes<MODE>(addends, shift, first * parameters.shift_step, k - first,
                                 parameters.shift_step);
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                Chunk chunk;
#pragma unroll
                for (int e = 0; e < V; ++e) {
                    float y = v[r][c][e] * to_compute(factors[e]);
                    if constexpr (SHIFTED) y += to_compute(addends[e]);
                    chunk[e] = from_compute<T>(y);
                }
                put(r, first, chunk);
            }
        }
    }

private:
    // Subtracts a number from the elements of a row; those behind the last stay zero.
    void subtract(int r, float number, int k, int lane) {
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
            for (int e = 0; e < V; ++e) {
                v[r][c][e] = column(c, lane) + e < k ? v[r][c][e] - number : 0.f;
            }
        }
    }

    // Sums of a function of each row's elements, in every lane.
    template <typename F>
    void add_up(float (&sums)[ROWS], F f) const {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            sums[r] = 0.f;
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
                for (int e = 0; e < V; ++e) sums[r] += f(v[r][c][e]);
            }
        }
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) sums[r] += __shfl_xor_sync(~0u, sums[r], mask);
        }
    }
};

}  // namespace ge2
