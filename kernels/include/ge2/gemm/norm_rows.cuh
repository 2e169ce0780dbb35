// Rows that are normalised on their way into a product.
#pragma once

#include <ge2/ptx/cp_async.cuh>
#include <ge2/ptx/ldst.cuh>
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
// so that the variance is a sum of squares of differences and loses nothing to a large mean. The
// rows come by way of a panel in shared memory: loads straight to registers waited for one another,
// since each may end inside an access, and a block's rows took several times as long.
// CENTRED: the mean is subtracted (layer norm). ALIGNED: whole accesses of x; PARAMETERS: of scale
// and shift. WHOLE: k is a multiple of an access. A Panel has the address of (row, column), at(), and
// its width in columns.
template <typename T, int CHUNKS, int ROWS, bool CENTRED, bool SHIFTED, bool ALIGNED,
          bool PARAMETERS, bool WHOLE>
struct NormRows {
    static constexpr int V = 16 / sizeof(T);
    using Chunk = Vec<T, V>;

    float v[ROWS][CHUNKS][V];
    Chunk factors[CHUNKS], addends[CHUNKS];

    NormRows(const NormParameters& parameters, int k, int lane) {
        constexpr int MODE = PARAMETERS ? kUnit : kStrided;
        const T* scale = static_cast<const T*>(parameters.scale);
        const T* shift = static_cast<const T*>(parameters.shift);
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            const int first = column(c, lane);
            load_lanes<MODE, WHOLE>(factors[c], scale, first * parameters.scale_step, k - first,
                                    parameters.scale_step);
            if constexpr (SHIFTED) {
                load_lanes<MODE, WHOLE>(addends[c], shift, first * parameters.shift_step,
                                        k - first, parameters.shift_step);
            }
        }
    }

    static int column(int chunk, int lane) { return (chunk * 32 + lane) * V; }

    // Starts to copy rows from number first of x on; those from rows_left on become zero, as do
    // columns from k on.
    template <typename Panel>
    static void fetch(const T* x, long long pitch, long long step, int first, int rows_left, int k,
                      int lane, const Panel& panel) {
#pragma unroll
        for (int r = first; r < first + ROWS; ++r) {
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                if (column(c, lane) >= panel.width) continue;
                const unsigned target = panel.at(r, column(c, lane));
                const int inside = r < rows_left ? k - column(c, lane) : 0;
                const long long at = inside > 0 ? r * pitch + column(c, lane) * step : 0;
                if constexpr (ALIGNED) {
                    const int valid = inside < 0 ? 0 : inside > V ? V : inside;
                    ptx::cp_async_16(target, x + at, valid * static_cast<int>(sizeof(T)));
                } else {
                    Chunk chunk;
                    load_lanes<kStrided>(chunk, x, at, inside, step);
                    ptx::store_shared_16(target, *reinterpret_cast<const uint4*>(&chunk));
                }
            }
        }
    }

    // Reads rows from number first of a panel on, after this lane's copies have arrived.
    template <typename Panel>
    void load(int first, int lane, const Panel& panel) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                uint4 bits = make_uint4(0, 0, 0, 0);
                if (column(c, lane) < panel.width) {
                    bits = ptx::load_shared_16(panel.at(first + r, column(c, lane)));
                }
                const Chunk chunk = *reinterpret_cast<const Chunk*>(&bits);
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
    void finish(int lane, Put put) const {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                Chunk chunk;
#pragma unroll
                for (int e = 0; e < V; ++e) {
                    float y = v[r][c][e] * to_compute(factors[c][e]);
                    if constexpr (SHIFTED) y += to_compute(addends[c][e]);
                    chunk[e] = from_compute<T>(y);
                }
                put(r, column(c, lane), chunk);
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
