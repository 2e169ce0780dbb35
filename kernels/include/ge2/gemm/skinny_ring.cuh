// Copies of a large matrix of weights and of a few rows X into the stages of a ring that wgmma reads:
// cp.async into tiles of 64 k in 128-byte swizzle (see WgmmaTile for their layouts).
#pragma once

#include <ge2/gemm/operand.cuh>
#include <ge2/ptx/cp_async.cuh>
#include <ge2/types.cuh>

namespace ge2 {

// How many of the 16-bit elements from a chunk's first one on are inside, in bytes.
inline int chunk_bytes(int inside) { return inside < 0 ? 0 : inside > 8 ? 16 : 2 * inside; }

// ROWS (a multiple of 64) of the weights, indexed (n, k), by 64 of k. Each of the 2 * ROWS threads
// copies 16 bytes from each of four places.
template <typename T, int ROWS, bool K_MAJOR>
struct WeightCopies {
    static constexpr int THREADS = 2 * ROWS;
    static constexpr int CHUNKS = K_MAJOR ? 8 : ROWS / 8;  // in a line
    static constexpr int STEP = THREADS / CHUNKS;          // lines between a thread's four places

    const T* sources[4];
    long long advance;
    unsigned target;
    int line, inside;  // inside: bytes of a chunk that are in the matrix as far as n decides

    WeightCopies(const T* matrix, long long stride_n, long long stride_k, int n0, int n, int k0)
        : advance(64 * stride_k) {
        const int t = static_cast<int>(threadIdx.x);
        const int chunk = t % CHUNKS;
        line = t / CHUNKS;
        inside = K_MAJOR ? 16 : chunk_bytes(n - n0 - chunk * 8);
        target = static_cast<unsigned>(chunk / 8 * 8192 + line * 128 +
                                       ((chunk ^ line) & 7) * 16);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int place = line + j * STEP;
            // Rows behind the last repeat it: they only reach sums that nobody stores.
            sources[j] = K_MAJOR
                ? matrix + lesser(n0 + place, n - 1) * stride_n + (k0 + chunk * 8)
                : matrix + (inside ? n0 + chunk * 8 : 0) + (k0 + place) * stride_k;
        }
    }

    // Starts the copies of the next tile; k_left of its k are in the matrix, the rest becomes zero.
    void load(unsigned stage, int k_left) {
        const int chunk = static_cast<int>(threadIdx.x) % CHUNKS;
        const int row_bytes = chunk_bytes(k_left - chunk * 8);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int bytes = K_MAJOR ? row_bytes : line + j * STEP < k_left ? inside : 0;
            ptx::cp_async_16(stage + target + j * STEP * 128, sources[j], bytes);
            sources[j] += advance;
        }
    }
};

// ROWS (a multiple of 8) rows of X, whose rows run along k, by 64 of k.
template <typename T, int ROWS, int THREADS>
struct RowCopies {
    static constexpr int COPIES = (ROWS * 8 + THREADS - 1) / THREADS;
    static constexpr int STEP = THREADS / 8;

    const T* sources[COPIES];

    RowCopies(const T* matrix, long long stride, int m, int k0) {
        const int t = static_cast<int>(threadIdx.x);
#pragma unroll
        for (int j = 0; j < COPIES; ++j) {
            sources[j] = matrix + lesser(t / 8 + j * STEP, m - 1) * stride + (k0 + t % 8 * 8);
        }
    }

    void load(unsigned stage, int k_left) {
        const int t = static_cast<int>(threadIdx.x);
        const int bytes = chunk_bytes(k_left - t % 8 * 8);
        const int row = t / 8;
        const unsigned target = stage + static_cast<unsigned>(row * 128 + ((t ^ row) & 7) * 16);
#pragma unroll
        for (int j = 0; j < COPIES; ++j) {
            if (row + j * STEP < ROWS) ptx::cp_async_16(target + j * STEP * 128, sources[j], bytes);
            sources[j] += 64;
        }
    }
};

}  // namespace ge2
