/*--- toml
primitive = "stage"
summary = "no staging: the consumer reads global memory, L1 serves what it reads again"
numerics = "in-order"
---*/
#pragma once

namespace ge2::stage::direct {

// A consumer of THREADS threads walks over tiles, blockIdx.x, blockIdx.x + gridDim.x, ...: tile t
// starts at x + t * TILE and spans SPAN floats, of which the consumer may read each any number of
// times. consume(t, read) is called by the consumer's threads; read(i) gives element i of the tile.
template <int THREADS, int TILE, int SPAN, int STAGES>
struct Stage {
    static constexpr int kThreads = THREADS;

    template <typename Consume>
    static void run(const float* x, long long tiles, unsigned char*, Consume consume) {
        for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
            const float* from = x + t * TILE;
            consume(t, [from](int i) { return from[i]; });
        }
    }
};

}  // namespace ge2::stage::direct
