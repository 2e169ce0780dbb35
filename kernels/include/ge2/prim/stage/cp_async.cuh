/*--- toml
primitive = "stage"
summary = "a ring of stages filled by cp.async, so that tiles travel past the registers"
numerics = "in-order"
arch = ["sm_80+"]
---*/
#pragma once

#include <ge2/ptx/address.cuh>
#include <ge2/ptx/cp_async.cuh>

namespace ge2::stage::cp_async {

// See direct.cuh for the contract.
template <int THREADS, int TILE, int SPAN, int STAGES>
struct Stage {
    static constexpr int kThreads = THREADS;

    template <typename Consume>
    static void run(const float* x, long long tiles, unsigned char* memory, Consume consume) {
        float* ring = reinterpret_cast<float*>(memory);
        const auto fetch = [&](long long t, int stage) {
            if (t < tiles) {
                for (int i = threadIdx.x; i < SPAN / 4; i += THREADS)
                    ptx::cp_async_16(ptx::smem_address(ring + stage * SPAN + i * 4),
                                     x + t * TILE + i * 4, 16);
            }
            ptx::cp_async_commit();
        };
        const long long step = gridDim.x;
        for (int s = 0; s + 1 < STAGES; ++s) fetch(blockIdx.x + s * step, s);
        int stage = 0, free = STAGES - 1;
        for (long long t = blockIdx.x; t < tiles; t += step) {
            ptx::cp_async_wait<STAGES - 2>();
            // Everybody's part of this tile is there, and everybody has left the tile before.
            __syncthreads();
            fetch(t + (STAGES - 1) * step, free);
            const float* tile = ring + stage * SPAN;
            consume(t, [tile](int i) { return tile[i]; });
            free = stage;
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        ptx::cp_async_wait<0>();
    }
};

}  // namespace ge2::stage::cp_async
