// Rows of 16-bit heads in shared memory, for ldmatrix.
#pragma once

#include <ge2/gemm/mma_tile.cuh>
#include <ge2/ptx/ldmatrix.cuh>
#include <ge2/types.cuh>

namespace ge2 {

// LINES rows of WIDTH elements, filled with zeros to whole steps of 16. Rows are an odd number of
// 16-byte chunks apart, so that the eight rows of an ldmatrix lie in different banks. VEC elements
// can be copied at once: 8, 4, 2, or 1 = through registers, as all are that are not ASYNC.
template <typename T, int LINES, int WIDTH, int THREADS, int VEC, bool ASYNC>
struct HeadTile {
    static constexpr int CHUNKS = (WIDTH + 15) / 16 * 2;
    static constexpr int PITCH = (CHUNKS + 1) * 16;  // bytes
    static constexpr int BYTES = LINES * PITCH;

    static unsigned at(int line, int chunk) {
        return static_cast<unsigned>(line * PITCH + chunk * 16);
    }

    // Starts to copy rows, `step` elements apart; those from `inside` on become zero. A thread stays
    // in one column of chunks, so that one address walks down its rows.
    static void load(unsigned tile, const T* source, long long step, int inside) {
        constexpr int ACROSS = CHUNKS <= 4 ? 4 : CHUNKS <= 8 ? 8 : CHUNKS <= 16 ? 16 : 32;
        constexpr int DOWN = THREADS / ACROSS;
        const int chunk = static_cast<int>(threadIdx.x) % ACROSS;
        const int line = static_cast<int>(threadIdx.x) / ACROSS;
        if (chunk >= CHUNKS) return;
        const int left = WIDTH - chunk * 8 > 8 ? 8 : WIDTH - chunk * 8 < 0 ? 0 : WIDTH - chunk * 8;
        const T* from = source + line * step + (left > 0 ? chunk * 8 : 0);
        unsigned to = tile + at(line, chunk);
#pragma unroll(VEC == 1 ? 1 : 4)
        for (int j = line; j < LINES; j += DOWN) {
            copy_chunk<VEC, ASYNC>(to, j < inside ? from : source, j < inside ? left : 0);
            from += DOWN * step;
            to += DOWN * PITCH;
        }
    }

    // The 16 x 16 fragment of a first operand: rows line on, elements 16 * step on.
    static void read_rows(unsigned (&r)[4], unsigned tile, int line, int step, int lane) {
        ptx::ldmatrix_x4(r, tile + at(line + lane % 16, step * 2 + lane / 16));
    }

    // Two 8 x 16 fragments of a second operand whose rows are the tile's: r[0], r[1] and r[2], r[3].
    static void read_columns(unsigned (&r)[4], unsigned tile, int line, int step, int lane) {
        ptx::ldmatrix_x4(r, tile + at(line + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
    }

    // The same of a second operand whose rows are the tile's columns: 16 of them from 16 * step on.
    static void read_transposed(unsigned (&r)[4], unsigned tile, int line, int step, int lane) {
        ptx::ldmatrix_x4_trans(
            r, tile + at(line + lane / 8 % 2 * 8 + lane % 8, step * 2 + lane / 16));
    }
};

}  // namespace ge2
