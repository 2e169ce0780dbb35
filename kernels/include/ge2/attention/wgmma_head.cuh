// Rows of one head in shared memory, as TMA puts them there and wgmma reads them.
#pragma once

#include <ge2/gemm/wgmma_tile.cuh>
#include <ge2/ptx/tma.cuh>
#include <ge2/ptx/wgmma.cuh>

namespace ge2 {

// ROWS rows of D columns (a multiple of 16): boxes of 64 columns side by side in 128-byte swizzle,
// or one of 32 in 64-byte swizzle. Columns behind the tensor's last are zero.
template <typename T, int D, int ROWS>
struct WgmmaHead {
    static constexpr int WIDTH = D <= 32 ? 32 : 64;
    static constexpr int ROW_BYTES = WIDTH * 2;
    static constexpr int BOXES = (D + WIDTH - 1) / WIDTH;
    static constexpr unsigned BOX_BYTES = ROWS * ROW_BYTES;
    static constexpr unsigned BYTES = BOXES * BOX_BYTES;
    // In descriptor units of 16 bytes: one instruction's rows of V.
    static constexpr unsigned STEP_ROWS = 16 * ROW_BYTES / 16;
    static_assert(sizeof(T) == 2 && D % 16 == 0, "16-bit types, 16 columns to an instruction");

    static void load(unsigned tile, const ptx::TensorMap* map, int row, int head, int batch,
                     unsigned bar) {
#pragma unroll
        for (int box = 0; box < BOXES; ++box) {
            ptx::tma_load_4d(tile + box * BOX_BYTES, map, box * WIDTH, row, head, batch, bar);
        }
    }

    // As Q or K, whose columns are summed over: the first 16 of them, from a row that is a multiple
    // of 64.
    static unsigned long long by_columns(unsigned tile, int row = 0) {
        return descriptor(tile + row * ROW_BYTES, 16);
    }

    // The distance to columns 16 * k and on, in descriptor units.
    static constexpr unsigned columns_offset(int k) {
        return (k * 16 / WIDTH * BOX_BYTES + k * 16 % WIDTH * 2) / 16;
    }

    // As V, whose rows are summed over: the first 16 of them.
    static unsigned long long by_rows(unsigned tile) { return descriptor(tile, BOX_BYTES); }

private:
    static unsigned long long descriptor(unsigned address, unsigned leading) {
        if constexpr (WIDTH == 64) return ptx::wgmma_descriptor(address, leading, 1024);
        return ptx::wgmma_descriptor_64(address, leading, 512);
    }
};

}  // namespace ge2
