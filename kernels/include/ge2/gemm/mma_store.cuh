// From the sums of a warp's mma.sync fragments to outputs in memory, through an epilogue.
#pragma once

#include <ge2/gemm/operand.cuh>

namespace ge2 {

// Stores eight neighbours of a row; WHOLE says that a vector of them may be stored at once.
template <bool WHOLE, typename T>
inline void store_eight(T* target, const T (&values)[8], long long stride, int inside) {
    if (WHOLE && inside >= 8) {
        constexpr int WIDTH = sizeof(T) > 2 ? 16 / sizeof(T) : 8;
#pragma unroll
        for (int at = 0; at < 8; at += WIDTH) {
            Vec<T, WIDTH> chunk;
#pragma unroll
            for (int e = 0; e < WIDTH; ++e) chunk[e] = values[at + e];
            *reinterpret_cast<Vec<T, WIDTH>*>(target + at) = chunk;
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        if (e < inside) target[e * stride] = values[e];
    }
}

// The sums of STEPS_M by STEPS_N tiles of 16 x 8 of one warp, each of 4 bytes. The epilogue is one
// small loop over rows in shared memory, 32 of them at a time, whatever it computes.
template <typename Sum, int STEPS_M, int STEPS_N>
struct WarpSums {
    static constexpr int COLUMNS = STEPS_N * 8;
    static constexpr int PITCH = COLUMNS + 8;
    static constexpr int BYTES = 32 * PITCH * 4;  // of shared memory

    // row0 and column0 are where the warp's part of the output begins.
    template <bool WHOLE, typename Epilogue, typename T>
    static void finish(const Sum (&acc)[STEPS_M][STEPS_N][4], Sum* staged,
                       const Epilogue& epilogue, T* y, const GemmOperand& place, int m, int n,
                       int row0, int column0, int lane) {
#pragma unroll
        for (int half = 0; half < STEPS_M / 2; ++half) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
#pragma unroll
                for (int j = 0; j < STEPS_N; ++j) {
                    const Sum(&d)[4] = acc[half * 2 + i][j];
                    Sum* target = staged + (i * 16 + lane / 4) * PITCH + j * 8 + lane % 4 * 2;
                    *reinterpret_cast<Vec<Sum, 2>*>(target) = {d[0], d[1]};
                    *reinterpret_cast<Vec<Sum, 2>*>(target + 8 * PITCH) = {d[2], d[3]};
                }
            }
            __syncwarp();
#pragma unroll 1
            for (int q = lane; q < 32 * COLUMNS / 8; q += 32) {
                const int r = row0 + half * 32 + q / (COLUMNS / 8);
                const int c = column0 + q % (COLUMNS / 8) * 8;
                if (r >= m || c >= n) continue;
                const Sum* source = staged + q / (COLUMNS / 8) * PITCH + q % (COLUMNS / 8) * 8;
                const auto low = *reinterpret_cast<const Vec<Sum, 4>*>(source);
                const auto high = *reinterpret_cast<const Vec<Sum, 4>*>(source + 4);
                T values[8];
#pragma unroll
                for (int e = 0; e < 8; ++e) {
                    values[e] = epilogue(e < 4 ? low[e] : high[e - 4], r, lesser(c + e, n - 1));
                }
                store_eight<WHOLE>(y + r * place.row + c * place.column, values, place.column,
                                   n - c);
            }
            __syncwarp();
        }
    }
};

}  // namespace ge2
