/*--- toml
primitive = "stage"
summary = "no staging: the consumer reads global memory, L1 serves what it reads again"
numerics = "in-order"
---*/
#pragma once

#include <ge2/tile/tiles.cuh>

namespace ge2::stage::direct {

// A consumer of THREADS threads walks over tiles of ROWS rows of up to SPAN floats, of which it may
// read each any number of times. source.at(t, r) is where row r of tile t starts, on a 16-byte
// boundary; source.length(t) floats of each row are there, a multiple of 4. consume(t, read) is
// called by the consumer's threads alone; read(r, i) gives element i of row r. Threads beyond the
// consumer's call run(), too. `ring` has room for STAGES tiles, `bars` for 16 * STAGES bytes that
// nobody used before; all threads have left `ring` when another walk begins.
template <int THREADS, int ROWS, int SPAN, int STAGES>
struct Stage {
    template <typename Source, typename Consume>
    static void run(const Tiles& tiles, const Source& source, unsigned char*, unsigned char*,
                    Consume consume) {
        for (long long t = tiles.first; t < tiles.count; t += tiles.step)
            consume(t, [&](int r, int i) { return source.at(t, r)[i]; });
    }
};

}  // namespace ge2::stage::direct
