/*--- toml
primitive = "stage"
summary = "a ring of stages filled by cp.async, so that tiles travel past the registers"
numerics = "in-order"
arch = ["sm_80+"]
---*/
#pragma once

#include <ge2/ptx/address.cuh>
#include <ge2/ptx/cp_async.cuh>
#include <ge2/tile/tiles.cuh>

namespace ge2::stage::cp_async {

// See direct.cuh for the contract.
template <int THREADS, int ROWS, int SPAN, int STAGES>
struct Stage {
    static constexpr int kPitch = tile_pitch(ROWS, SPAN);

    // GE2_SYNC_COPIES: the same ring without asynchronous copies, to see what these are worth.
    static void copy(float* to, const float* from) {
#ifdef GE2_SYNC_COPIES
        *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
#else
        ptx::cp_async_16(ptx::smem_address(to), from, 16);
#endif
    }

    template <typename Source, typename Consume>
    static void run(const Tiles& tiles, const Source& source, unsigned char* memory, unsigned char*,
                    Consume consume) {
        float* ring = reinterpret_cast<float*>(memory);
        const auto fetch = [&](long long t, int stage) {
            if (t < tiles.count) {
                const int length = source.length(t);
                float* to = ring + stage * ROWS * kPitch;
                for (int i = threadIdx.x; i < ROWS * SPAN / 4; i += THREADS) {
                    const int r = i / (SPAN / 4), c = i % (SPAN / 4) * 4;
                    if (c < length) copy(to + r * kPitch + c, source.at(t, r) + c);
                }
            }
            ptx::cp_async_commit();
        };
        for (int s = 0; s + 1 < STAGES; ++s) fetch(tiles.first + s * tiles.step, s);
        int stage = 0, free = STAGES - 1;
        for (long long t = tiles.first; t < tiles.count; t += tiles.step) {
            ptx::cp_async_wait<STAGES - 2>();
            // Everybody's part of this tile is there, and everybody has left the tile before.
            __syncthreads();
            fetch(t + (STAGES - 1) * tiles.step, free);
            const float* tile = ring + stage * ROWS * kPitch;
            consume(t, [tile](int r, int i) { return tile[r * kPitch + i]; });
            free = stage;
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        ptx::cp_async_wait<0>();
    }
};

}  // namespace ge2::stage::cp_async
