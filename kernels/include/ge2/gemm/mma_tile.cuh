// 16-bit operand tiles for mma.sync: global memory to swizzled shared memory to fragments.
#pragma once

#include <ge2/ptx/cp_async.cuh>
#include <ge2/ptx/ldmatrix.cuh>
#include <ge2/ptx/ldst.cuh>
#include <ge2/ptx/mma.cuh>
#include <ge2/types.cuh>

namespace ge2 {

// Eight neighbours of a tile, 16 bytes, from global memory; those from inside on become zero.
template <typename T>
inline uint4 gather_chunk(const T* source, long long stride, int inside) {
    unsigned words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        const unsigned low = 2 * w < inside ? source[2 * w * stride].bits : 0u;
        const unsigned high = 2 * w + 1 < inside ? source[(2 * w + 1) * stride].bits : 0u;
        words[w] = low | high << 16;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// Starts to copy eight neighbours, 16 bytes, to shared memory; those from inside on become zero. VEC
// elements can be copied at once: 8, 4, 2, or 1 = through registers, as all are that are not ASYNC.
template <int VEC, bool ASYNC, typename T>
inline void copy_chunk(unsigned target, const T* source, int inside) {
    if constexpr (VEC == 1 || !ASYNC) {
        ptx::store_shared_16(target, VEC == 8 && inside == 8
                                         ? *reinterpret_cast<const uint4*>(source)
                                         : gather_chunk(source, 1, inside));
    } else if constexpr (VEC == 8) {
        ptx::cp_async_16(target, source, 2 * inside);
    } else {
#pragma unroll
        for (int e = 0; e < 8; e += VEC) {
            const int rest = inside - e < 0 ? 0 : inside - e > VEC ? VEC : inside - e;
            const T* piece = rest > 0 ? source + e : source;
            if constexpr (VEC == 4) ptx::cp_async_8(target + 2 * e, piece, 2 * rest);
            if constexpr (VEC == 2) ptx::cp_async_4(target + 2 * e, piece, 2 * rest);
        }
    }
}

// A tile of EXTENT rows (of A or B; indexed i) by BK of k. Memory order is kept: lines of k for a
// K-major operand, of i otherwise. The 16-byte chunks of a line change places by the line's number,
// so that the eight lines that one ldmatrix reads lie in different banks.
// VEC is the number of elements that one copy may take at once (8, 4, 2 or 1 = none).
template <typename T, int EXTENT, int BK, int THREADS, bool K_MAJOR, int VEC, bool ASYNC>
struct MmaTile {
    static constexpr int DEPTH = BK;
    static constexpr int BYTES = EXTENT * BK * 2;
    static constexpr int LINES = K_MAJOR ? EXTENT : BK;
    static constexpr int CHUNKS = (K_MAJOR ? BK : EXTENT) / 8;
    static constexpr int PER_THREAD = LINES * CHUNKS / THREADS;
    static_assert(PER_THREAD * THREADS == LINES * CHUNKS, "the threads share a tile evenly");

    static unsigned offset(int line, int chunk) {
        const int moved = chunk ^ (CHUNKS >= 8 ? line & 7 : line >> 1 & 3);
        return static_cast<unsigned>((line * CHUNKS + moved) * 16);
    }

    // Starts the copy of the tile whose first element is at origin; i_left and k_left say how much
    // of the matrix is there, the rest becomes zero.
    static void load(unsigned tile, const T* origin, long long stride_i, long long stride_k,
                     int i_left, int k_left) {
#pragma unroll(VEC == 1 ? 1 : PER_THREAD)
        for (int j = 0; j < PER_THREAD; ++j) {
            const int q = static_cast<int>(threadIdx.x) + j * THREADS;
            const int line = q / CHUNKS;
            const int chunk = q % CHUNKS;
            const int i = K_MAJOR ? line : chunk * 8;
            const int k = K_MAJOR ? chunk * 8 : line;
            int inside = K_MAJOR ? (i < i_left ? k_left - k : 0) : (k < k_left ? i_left - i : 0);
            inside = inside < 0 ? 0 : inside > 8 ? 8 : inside;
            const T* source = inside > 0 ? origin + i * stride_i + k * stride_k : origin;
            copy(tile + offset(line, chunk), source, K_MAJOR ? stride_k : stride_i, inside);
        }
    }

    // The 16 x 16 fragment of a first operand.
    static void read_a(unsigned (&r)[4], unsigned tile, int i, int k, int lane) {
        if constexpr (K_MAJOR) {
            ptx::ldmatrix_x4(r, tile + offset(i + lane % 16, k / 8 + lane / 16));
        } else {
            ptx::ldmatrix_x4_trans(
                r, tile + offset(k + lane / 16 * 8 + lane % 8, i / 8 + lane / 8 % 2));
        }
    }

    // Two 8 x 16 fragments of a second operand: r[0], r[1] and r[2], r[3].
    static void read_b(unsigned (&r)[4], unsigned tile, int i, int k, int lane) {
        if constexpr (K_MAJOR) {
            ptx::ldmatrix_x4(r,
                             tile + offset(i + lane / 16 * 8 + lane % 8, k / 8 + lane / 8 % 2));
        } else {
            ptx::ldmatrix_x4_trans(
                r, tile + offset(k + lane / 8 % 2 * 8 + lane % 8, i / 8 + lane / 16));
        }
    }

private:
    static void copy(unsigned target, const T* source, long long stride, int inside) {
        if constexpr (VEC == 1) {
            ptx::store_shared_16(target, gather_chunk(source, stride, inside));
        } else {
            copy_chunk<VEC, ASYNC>(target, source, inside);
        }
    }
};

inline void mma_k16(f16, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    ptx::mma_m16n8k16_f16(d, a, b);
}
inline void mma_k16(bf16, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    ptx::mma_m16n8k16_bf16(d, a, b);
}

// d += a * b for 16 x 8 x 16; older GPUs do it in two steps of 8.
template <typename T, bool HALF_STEPS>
inline void multiply_fragments(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    if constexpr (HALF_STEPS) {
        const unsigned first[2] = {a[0], a[1]};
        const unsigned second[2] = {a[2], a[3]};
        ptx::mma_m16n8k8_f16(d, first, b[0]);
        ptx::mma_m16n8k8_f16(d, second, b[1]);
    } else {
        mma_k16(T{}, d, a, b);
    }
}

}  // namespace ge2
