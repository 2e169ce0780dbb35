// Scores of one fragment: what a formula and a mask make of them, and which keys count.
#pragma once

#include <ge2/attention/place.cuh>
#include <ge2/gemm/operand.cuh>
#include <ge2/scalar.cuh>

namespace ge2 {

// The matrix over (query, key) of an operand whose last batch axes are sequence and head.
template <typename T>
inline GemmOperand scores_of(GemmOperand operand, const Place& place) {
    operand.pointer = static_cast<const T*>(operand.pointer) +
                      place.sequence.index * operand.batch[1] + place.head * operand.batch[2];
    return operand;
}

// Four values of mma and wgmma accumulators: rows row and row + 8, columns column and column + 1.
template <typename Score>
inline void modify_fragment(float (&s)[4], const Score& score, int row, int column) {
    score.pair(s[0], s[1], row, column);
    score.pair(s[2], s[3], row + 8, column);
}

// Leaves -inf where the key is not in its row's range; rows[0] is of row, rows[1] of row + 8.
inline void forbid_fragment(float (&s)[4], const KeyRange (&rows)[2], int column) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        if (!rows[e / 2].has(column + e % 2)) s[e] = -inf_f32();
    }
}

// What is subtracted before exponentials: exp(-inf - 0) is 0, exp(-inf - -inf) would be NaN.
inline float safe_peak(float peak) { return peak == -inf_f32() ? 0.f : peak; }
inline double safe_peak(double peak) { return peak == -inf_f64() ? 0.0 : peak; }

}  // namespace ge2
