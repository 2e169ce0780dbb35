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
#include <ge2/tile/tiles.cuh>

namespace ge2::stage::producer_consumer {

// See direct.cuh for the contract; the producer is the warp after the consumers.
template <int THREADS, int ROWS, int SPAN, int STAGES>
struct Stage {
    static constexpr int kPitch = tile_pitch(ROWS, SPAN);

    template <typename Source, typename Consume>
    static void run(const Tiles& tiles, const Source& source, unsigned char* memory,
                    unsigned char* bars, Consume consume) {
        float* ring = reinterpret_cast<float*>(memory);
        const unsigned full = ptx::smem_address(bars), empty = full + STAGES * 8;
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
        const int lane = threadIdx.x % 32;
        if (threadIdx.x >= THREADS + 32) return;
        for (long long t = tiles.first; t < tiles.count; t += tiles.step) {
            float* tile = ring + stage * ROWS * kPitch;
            const unsigned arrived = full + 8 * stage;
            if (produces) {
                const unsigned bytes = source.length(t) * 4;
                ptx::mbarrier_wait(empty + 8 * stage, parity ^ 1u);
                if (lane == 0) ptx::mbarrier_arrive_expect_tx(arrived, ROWS * bytes);
                __syncwarp();
                for (int r = lane; r < ROWS; r += 32)
                    ptx::bulk_load(ptx::smem_address(tile + r * kPitch), source.at(t, r), bytes,
                                   arrived);
            } else {
                ptx::mbarrier_wait(arrived, parity);
                consume(t, [tile](int r, int i) { return tile[r * kPitch + i]; });
                __syncwarp();
                if (lane == 0) ptx::mbarrier_arrive(empty + 8 * stage);
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
            parity ^= stage == 0 ? 1u : 0u;
        }
    }
};

}  // namespace ge2::stage::producer_consumer
