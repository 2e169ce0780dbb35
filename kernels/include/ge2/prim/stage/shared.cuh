/*--- toml
primitive = "stage"
summary = "one buffer in shared memory: copy, barrier, consume, barrier"
numerics = "in-order"
---*/
#pragma once

namespace ge2::stage::shared {

// See direct.cuh for the contract.
template <int THREADS, int TILE, int SPAN, int STAGES>
struct Stage {
    static constexpr int kThreads = THREADS;

    template <typename Consume>
    static void run(const float* x, long long tiles, unsigned char* memory, Consume consume) {
        float4* buffer = reinterpret_cast<float4*>(memory);
        const float* tile = reinterpret_cast<const float*>(memory);
        for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
            const float4* from = reinterpret_cast<const float4*>(x + t * TILE);
            for (int i = threadIdx.x; i < SPAN / 4; i += THREADS) buffer[i] = from[i];
            __syncthreads();
            consume(t, [tile](int i) { return tile[i]; });
            __syncthreads();
        }
    }
};

}  // namespace ge2::stage::shared
