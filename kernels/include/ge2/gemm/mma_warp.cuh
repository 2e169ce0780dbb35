// A warp's part of a product of 16-bit matrices on mma.sync: fragments from shared memory, sums in
// registers, and their way through an epilogue to global memory.
#pragma once

#include <ge2/gemm/mma_tile.cuh>
#include <ge2/gemm/operand.cuh>
#include <ge2/gemm/row_values.cuh>

namespace ge2 {

// Stores eight neighbours of a row.
template <int VEC, typename T>
inline void store_chunk(T* target, const T (&values)[8], long long stride, int inside) {
    if (VEC == 8 && inside >= 8) {
        Vec<T, 8> chunk;
#pragma unroll
        for (int e = 0; e < 8; ++e) chunk[e] = values[e];
        *reinterpret_cast<Vec<T, 8>*>(target) = chunk;
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        if (e < inside) target[e * stride] = values[e];
    }
}

// WARP_M x WARP_N outputs, WARP_M a multiple of 32, WARP_N of 16.
template <typename T, typename TileA, typename TileB, int WARP_M, int WARP_N, bool HALF_STEPS>
struct MmaWarp {
    static constexpr int STEPS_M = WARP_M / 16;
    static constexpr int STEPS_N = WARP_N / 8;
    static_assert(TileA::DEPTH == TileB::DEPTH, "tiles of one k");
    // The sums go to the epilogue, 32 rows at a time, through f32 rows of this pitch.
    static constexpr int PITCH = WARP_N + 8;
    static constexpr int STAGED = 32 * PITCH;

    using Sums = float[STEPS_M][STEPS_N][4];

    // The fragments of one step of 16 along k.
    struct Fragments {
        unsigned a[STEPS_M][4], b[STEPS_N / 2][4];

        void load(unsigned tile_a, unsigned tile_b, int k, int row, int column, int lane) {
#pragma unroll
            for (int i = 0; i < STEPS_M; ++i) TileA::read_a(a[i], tile_a, row + i * 16, k, lane);
#pragma unroll
            for (int j = 0; j < STEPS_N / 2; ++j) {
                TileB::read_b(b[j], tile_b, column + j * 16, k, lane);
            }
        }

        void multiply(Sums& acc) const {
#pragma unroll
            for (int i = 0; i < STEPS_M; ++i) {
#pragma unroll
                for (int j = 0; j < STEPS_N; ++j) {
                    const unsigned right[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                    multiply_fragments<T, HALF_STEPS>(acc[i][j], a[i], right);
                }
            }
        }
    };

    // Adds the products of a pair of tiles; row and column are where the warp's part begins.
    static void multiply(Sums& acc, unsigned tile_a, unsigned tile_b, int row, int column,
                         int lane) {
        Fragments fragments[2];
        fragments[0].load(tile_a, tile_b, 0, row, column, lane);
#pragma unroll
        for (int k = 0; k < TileA::DEPTH; k += 16) {
            if (k + 16 < TileA::DEPTH) {
                fragments[k / 16 + 1 & 1].load(tile_a, tile_b, k + 16, row, column, lane);
            }
            fragments[k / 16 & 1].multiply(acc);
        }
    }

    // Makes the warp's outputs; row0 and column0 are where they begin in the matrix y of m x n. The
    // epilogue is one small loop over rows in shared memory, STAGED floats of this warp's own,
    // whatever it computes. rows takes in what is stored, as a part of the tile's rows from row on.
    template <int VEC_Y, typename Epilogue, typename Rows = NoRowValues>
    static void finish(const Sums& acc, float* staged, const Epilogue& epilogue, T* y,
                       const GemmOperand& place, int m, int n, int row0, int column0, int lane,
                       const Rows& rows = {}, int part = 0, int row = 0) {
        constexpr int CHUNKS = WARP_N / 8;
#pragma unroll
        for (int half = 0; half < STEPS_M / 2; ++half) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
#pragma unroll
                for (int j = 0; j < STEPS_N; ++j) {
                    const float(&d)[4] = acc[half * 2 + i][j];
                    float* target = staged + (i * 16 + lane / 4) * PITCH + j * 8 + lane % 4 * 2;
                    *reinterpret_cast<float2*>(target) = make_float2(d[0], d[1]);
                    *reinterpret_cast<float2*>(target + 8 * PITCH) = make_float2(d[2], d[3]);
                }
            }
            __syncwarp();
#pragma unroll 1
            for (int q = lane; q < 32 * CHUNKS; q += 32) {
                const int r = row0 + half * 32 + q / CHUNKS;
                const int c = column0 + q % CHUNKS * 8;
                const bool inside = r < m && c < n;
                if (!Rows::ACTIVE && !inside) continue;
                const float* source = staged + q / CHUNKS * PITCH + q % CHUNKS * 8;
                const float4 low = *reinterpret_cast<const float4*>(source);
                const float4 high = *reinterpret_cast<const float4*>(source + 4);
                const float sums[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
                T values[8];
                if (inside) {
#pragma unroll
                    for (int e = 0; e < 8; ++e) {
                        values[e] = epilogue(sums[e], r, lesser(c + e, n - 1));
                    }
                    store_chunk<VEC_Y>(y + r * place.row + c * place.column, values, place.column,
                                       n - c);
                }
                if constexpr (Rows::ACTIVE) {
                    float value = Rows::none();
#pragma unroll
                    for (int e = 0; e < 8; ++e) {
                        if (inside && c + e < n) value = Rows::with(value, values[e]);
                    }
                    value = Rows::template across<CHUNKS>(value);
                    if (q % CHUNKS == 0) rows.put(part, row + half * 32 + q / CHUNKS, value);
                }
            }
            __syncwarp();
        }
    }
};

}  // namespace ge2
