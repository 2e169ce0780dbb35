/*--- toml
primitive = "stage"
summary = "one buffer in shared memory: copy, barrier, consume, barrier"
numerics = "in-order"
---*/
#pragma once

#include <ge2/tile/tiles.cuh>

namespace ge2::stage::shared {

// See direct.cuh for the contract.
template <int THREADS, int ROWS, int SPAN, int STAGES>
struct Stage {
    static constexpr int kPitch = tile_pitch(ROWS, SPAN);

    template <typename Source, typename Consume>
    static void run(const Tiles& tiles, const Source& source, unsigned char* ring, unsigned char*,
                    Consume consume) {
        float* tile = reinterpret_cast<float*>(ring);
        for (long long t = tiles.first; t < tiles.count; t += tiles.step) {
            const int length = source.length(t);
            for (int i = threadIdx.x; i < ROWS * SPAN / 4; i += THREADS) {
                const int r = i / (SPAN / 4), c = i % (SPAN / 4) * 4;
                if (c < length)
                    *reinterpret_cast<float4*>(tile + r * kPitch + c) =
                        *reinterpret_cast<const float4*>(source.at(t, r) + c);
            }
            __syncthreads();
            consume(t, [tile](int r, int i) { return tile[r * kPitch + i]; });
            __syncthreads();
        }
    }
};

}  // namespace ge2::stage::shared
