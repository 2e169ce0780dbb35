// 8-bit operand tiles for mma.sync: global memory to swizzled shared memory to fragments.
#pragma once

#include <ge2/ptx/cp_async.cuh>
#include <ge2/ptx/ldmatrix.cuh>
#include <ge2/ptx/ldst.cuh>

namespace ge2 {

// Sixteen neighbours along k, from global memory; those from inside on become zero.
inline uint4 gather_bytes(const unsigned char* source, long long stride, int inside) {
    unsigned words[4] = {};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const unsigned byte = i < inside ? source[i * stride] : 0u;
        words[i / 4] |= byte << i % 4 * 8;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// A tile of EXTENT rows (of A or B; indexed i) by BK bytes of k. Rows run along k whatever the
// order in memory: ldmatrix cannot transpose bytes, so an operand that is not K-major is gathered.
// The 16-byte chunks of a row change places by the row's number, as in MmaTile; fragments of bytes
// are those of 16-bit elements with two bytes in the place of one element.
// VEC is the number of bytes that one copy may take at once (16, 8, 4 or 1 = none).
template <int EXTENT, int BK, int THREADS, bool K_MAJOR, int VEC>
struct ByteTile {
    static constexpr int BYTES = EXTENT * BK;
    static constexpr int CHUNKS = BK / 16;
    static constexpr int PER_THREAD = EXTENT * CHUNKS / THREADS;
    static_assert(PER_THREAD * THREADS == EXTENT * CHUNKS, "the threads share a tile evenly");

    static unsigned offset(int row, int chunk) {
        const int moved = chunk ^ (CHUNKS >= 8 ? row & 7 : row >> 1 & 3);
        return static_cast<unsigned>((row * CHUNKS + moved) * 16);
    }

    // Starts the copy of the tile whose first element is at origin; i_left and k_left say how much
    // of the matrix is there, the rest becomes zero.
    static void load(unsigned tile, const unsigned char* origin, long long stride_i,
                     long long stride_k, int i_left, int k_left) {
#pragma unroll(VEC == 1 ? 1 : PER_THREAD)
        for (int j = 0; j < PER_THREAD; ++j) {
            const int q = static_cast<int>(threadIdx.x) + j * THREADS;
            // Neighbouring threads read neighbouring addresses.
            const int row = K_MAJOR ? q / CHUNKS : q % EXTENT;
            const int chunk = K_MAJOR ? q % CHUNKS : q / EXTENT;
            int inside = row < i_left ? k_left - chunk * 16 : 0;
            inside = inside < 0 ? 0 : inside > 16 ? 16 : inside;
            const unsigned char* source =
                inside > 0 ? origin + row * stride_i + chunk * 16 * stride_k : origin;
            copy(tile + offset(row, chunk), source, stride_k, inside);
        }
    }

    // The 16 x 32 fragment of a first operand.
    static void read_a(unsigned (&r)[4], unsigned tile, int i, int k, int lane) {
        ptx::ldmatrix_x4(r, tile + offset(i + lane % 16, k / 16 + lane / 16));
    }

    // Two 8 x 32 fragments of a second operand: r[0], r[1] and r[2], r[3].
    static void read_b(unsigned (&r)[4], unsigned tile, int i, int k, int lane) {
        ptx::ldmatrix_x4(r, tile + offset(i + lane / 16 * 8 + lane % 8, k / 16 + lane / 8 % 2));
    }

private:
    static void copy(unsigned target, const unsigned char* source, long long stride, int inside) {
        if constexpr (VEC == 1) {
            ptx::store_shared_16(target, gather_bytes(source, stride, inside));
        } else if constexpr (VEC == 16) {
            ptx::cp_async_16(target, source, inside);
        } else {
#pragma unroll
            for (int e = 0; e < 16; e += VEC) {
                const int rest = inside - e < 0 ? 0 : inside - e > VEC ? VEC : inside - e;
                const unsigned char* piece = rest > 0 ? source + e : source;
                if constexpr (VEC == 8) ptx::cp_async_8(target + e, piece, rest);
                if constexpr (VEC == 4) ptx::cp_async_4(target + e, piece, rest);
            }
        }
    }
};

}  // namespace ge2
