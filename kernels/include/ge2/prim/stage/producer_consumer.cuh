/*--- toml
primitive = "stage"
summary = "a warp of its own fills a ring by bulk copies; consumers wait for data, the producer for room"
numerics = "in-order"
arch = ["sm_90+"]
extra_threads = 32
---*/
#pragma once

#include <ge2/ptx/address.cuh>
#include <ge2/ptx/fence.cuh>
#include <ge2/ptx/mbarrier.cuh>
#include <ge2/ptx/tma.cuh>

namespace ge2::stage::producer_consumer {

// See direct.cuh for the contract; the producer is the warp after the consumers.
template <int THREADS, int TILE, int SPAN, int STAGES>
struct Stage {
    static constexpr int kThreads = THREADS + 32;

    template <typename Consume>
    static void run(const float* x, long long tiles, unsigned char* memory, Consume consume) {
        float* ring = reinterpret_cast<float*>(memory);
        const unsigned full = ptx::smem_address(memory) + STAGES * SPAN * 4;
        const unsigned empty = full + STAGES * 8;
        if (threadIdx.x == 0) {
            for (int s = 0; s < STAGES; ++s) {
                ptx::mbarrier_init(full + 8 * s, 1);
                ptx::mbarrier_init(empty + 8 * s, THREADS / 32);
            }
            ptx::fence_mbarrier_init();
        }
        __syncthreads();
        int stage = 0;
        unsigned parity = 0;
        const bool produces = threadIdx.x >= THREADS;
        if (produces && threadIdx.x % 32 != 0) return;
        for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
            float* tile = ring + stage * SPAN;
            if (produces) {
                ptx::mbarrier_wait(empty + 8 * stage, parity ^ 1u);
                ptx::mbarrier_arrive_expect_tx(full + 8 * stage, SPAN * 4);
                ptx::bulk_load(ptx::smem_address(tile), x + t * TILE, SPAN * 4, full + 8 * stage);
            } else {
                ptx::mbarrier_wait(full + 8 * stage, parity);
                consume(t, [tile](int i) { return tile[i]; });
                __syncwarp();
                if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty + 8 * stage);
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
            parity ^= stage == 0 ? 1u : 0u;
        }
    }
};

}  // namespace ge2::stage::producer_consumer
