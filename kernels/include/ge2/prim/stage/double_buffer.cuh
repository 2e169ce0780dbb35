/*--- toml
primitive = "stage"
summary = "two buffers: the next tile travels in registers while this one is consumed"
numerics = "in-order"
---*/
#pragma once

#include <ge2/tile/tiles.cuh>

namespace ge2::stage::double_buffer {

// See direct.cuh for the contract.
template <int THREADS, int ROWS, int SPAN, int STAGES>
struct Stage {
    static constexpr int kPitch = tile_pitch(ROWS, SPAN);
    static constexpr int kEach = (ROWS * SPAN / 4 + THREADS - 1) / THREADS;

    // Calls f(k, r, c) for each of this thread's accesses that are there: its number, row, column.
    template <typename F>
    static void each(int length, F f) {
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
            const int i = threadIdx.x + k * THREADS;
            const int r = i / (SPAN / 4), c = i % (SPAN / 4) * 4;
            if (r < ROWS && c < length) f(k, r, c);
        }
    }

    template <typename Source, typename Consume>
    static void run(const Tiles& tiles, const Source& source, unsigned char* ring, unsigned char*,
                    Consume consume) {
        float4 next[kEach];
        const auto load = [&](long long t) {
            if (t >= tiles.count) return;
            each(source.length(t), [&](int k, int r, int c) {
                next[k] = *reinterpret_cast<const float4*>(source.at(t, r) + c);
            });
        };
        load(tiles.first);
        int turn = 0;
        for (long long t = tiles.first; t < tiles.count; t += tiles.step) {
            float* tile = reinterpret_cast<float*>(ring) + turn * ROWS * kPitch;
            turn ^= 1;
            each(source.length(t), [&](int k, int r, int c) {
                *reinterpret_cast<float4*>(tile + r * kPitch + c) = next[k];
            });
            load(t + tiles.step);
            // One barrier a tile: the other buffer was consumed before it.
            __syncthreads();
            consume(t, [tile](int r, int i) { return tile[r * kPitch + i]; });
        }
    }
};

}  // namespace ge2::stage::double_buffer
