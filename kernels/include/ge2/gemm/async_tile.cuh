// f32 operand tiles for products on CUDA cores: global to shared memory by cp.async, transposed on
// the way where that is needed.
#pragma once

#include <ge2/ptx/cp_async.cuh>

namespace ge2 {

// A tile of EXTENT rows (of A or B; indexed i) by BK of k lies in shared memory as [k][i], so that
// a thread's rows of one k are neighbours whatever the layout in global memory. A K-major operand
// is moved by 4 bytes at a time, which turns it; any other by VEC elements.
// A thread always copies the same k of a K-major tile, and the same i of any other.
template <int EXTENT, int BK, int THREADS, bool K_MAJOR, int VEC>
struct AsyncTile {
    // Four more columns put the neighbours in k that a warp writes into different banks.
    static constexpr int PITCH = EXTENT + (K_MAJOR ? 4 : 0);
    static constexpr int BYTES = PITCH * BK * 4;
    static constexpr int WIDTH = K_MAJOR ? 1 : VEC;
    static constexpr int ACROSS = K_MAJOR ? BK : EXTENT / WIDTH;
    static constexpr int STEP = THREADS / ACROSS;
    static constexpr int COPIES = EXTENT * BK / WIDTH / THREADS;
    static_assert(STEP * ACROSS == THREADS, "a pass of all threads covers whole lines");
    static_assert(COPIES * WIDTH * THREADS == EXTENT * BK, "the threads share a tile evenly");

    const float* source;  // of the tile at hand
    long long advance;    // from one tile to the next
    int offsets[COPIES];
    unsigned target;
    int first_k;
    int width;  // bytes of a copy inside the matrix

    // extent rows are left from this tile's first on. Rows behind them repeat the last one: they
    // only reach sums that nobody stores.
    AsyncTile(const float* origin, long long stride_i, long long stride_k, int extent,
              unsigned tiles)
        : source(origin), advance(BK * stride_k), width(4 * WIDTH) {
        const int t = static_cast<int>(threadIdx.x);
        const int line = t / ACROSS;
        const int place = t % ACROSS * WIDTH;
        first_k = K_MAJOR ? place : line;
        if constexpr (K_MAJOR) {
            source += place * stride_k;
            target = tiles + static_cast<unsigned>(place * PITCH + line) * 4;
        } else {
            const int column = place < extent ? place : 0;
            width = 4 * (extent - column < WIDTH ? extent - column : WIDTH);
            source += column * stride_i + line * stride_k;
            target = tiles + static_cast<unsigned>(line * PITCH + place) * 4;
        }
#pragma unroll
        for (int j = 0; j < COPIES; ++j) {
            const int i = line + j * STEP < extent ? line + j * STEP : extent - 1;
            offsets[j] = K_MAJOR ? static_cast<int>(i * stride_i)
                                 : static_cast<int>(j * STEP * stride_k);
        }
    }

    // Starts the copies of the next tile into a stage; k_left of its k are in the matrix, the rest
    // becomes zero.
    void load(unsigned stage_bytes, int k_left) {
#pragma unroll
        for (int j = 0; j < COPIES; ++j) {
            const int k = first_k + (K_MAJOR ? 0 : j * STEP);
            const int bytes = k < k_left ? width : 0;
            const unsigned to =
                target + stage_bytes + (K_MAJOR ? j * STEP : j * STEP * PITCH) * 4;
            if constexpr (WIDTH == 4) {
                ptx::cp_async_16(to, source + offsets[j], bytes);
            } else {
                ptx::cp_async_4(to, source + offsets[j], bytes);
            }
        }
        source += advance;
    }
};

// Eight or sixteen neighbours in groups of four, GAP floats apart, from one k of a tile.
template <int COUNT, int GAP>
inline void read_groups(float (&values)[COUNT], const float* line) {
#pragma unroll
    for (int group = 0; group < COUNT / 4; ++group) {
        const float4 v = *reinterpret_cast<const float4*>(line + group * GAP);
        values[group * 4] = v.x;
        values[group * 4 + 1] = v.y;
        values[group * 4 + 2] = v.z;
        values[group * 4 + 3] = v.w;
    }
}

}  // namespace ge2
