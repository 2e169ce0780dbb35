/*--- toml
primitive = "stage"
summary = "two buffers: the next tile travels in registers while this one is consumed"
numerics = "in-order"
---*/
#pragma once

namespace ge2::stage::double_buffer {

// See direct.cuh for the contract.
template <int THREADS, int TILE, int SPAN, int STAGES>
struct Stage {
    static constexpr int kThreads = THREADS;
    static constexpr int kEach = (SPAN / 4 + THREADS - 1) / THREADS;

    static void load(float4 (&next)[kEach], const float* from) {
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
            const int i = threadIdx.x + k * THREADS;
            if (i < SPAN / 4) next[k] = reinterpret_cast<const float4*>(from)[i];
        }
    }

    template <typename Consume>
    static void run(const float* x, long long tiles, unsigned char* memory, Consume consume) {
        float4 next[kEach];
        if (blockIdx.x < tiles) load(next, x + static_cast<long long>(blockIdx.x) * TILE);
        int turn = 0;
        for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
            float* tile = reinterpret_cast<float*>(memory) + turn * SPAN;
            turn ^= 1;
#pragma unroll
            for (int k = 0; k < kEach; ++k) {
                const int i = threadIdx.x + k * THREADS;
                if (i < SPAN / 4) reinterpret_cast<float4*>(tile)[i] = next[k];
            }
            if (t + gridDim.x < tiles) load(next, x + (t + gridDim.x) * TILE);
            // One barrier a tile: the other buffer was consumed before it.
            __syncthreads();
            consume(t, [tile](int i) { return tile[i]; });
        }
    }
};

}  // namespace ge2::stage::double_buffer
