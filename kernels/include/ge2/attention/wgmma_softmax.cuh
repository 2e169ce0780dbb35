// Softmax that streams over blocks of scores in wgmma's accumulators: a running maximum and sum,
// and the factor by which what was summed before shrinks.
#pragma once

#include <ge2/ptx/approx.cuh>
#include <ge2/scalar.cuh>
#include <ge2/types.cuh>

namespace ge2 {

// Of a thread's two rows, lane / 4 and the one eight further down. Sums are of this thread's
// columns until quad_sum.
struct RowWeights {
    float most[2], sum[2];
};

// Over the four lanes that share a row.
inline float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

inline float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Turns scores into weights exp2(factor * (score - maximum)), at most 1. FIRST begins a row, else
// shrink is what sums before this block are multiplied by. GUARDED: a row may have no score above
// minus infinity; its weights are 0. NaN makes its row NaN.
template <bool FIRST, bool GUARDED, int N>
inline void weigh(float (&scores)[N], float factor, RowWeights& rows, float (&shrink)[2]) {
    float most[2], base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) most[r] = FIRST ? scores[r * 2] : rows.most[r];
#pragma unroll
    for (int i = 0; i < N; ++i) most[i / 2 % 2] = fmaxf(most[i / 2 % 2], scores[i]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        most[r] = quad_max(most[r]);
        base[r] = most[r] * factor;
        if (GUARDED && most[r] == -inf_f32()) base[r] = 0.0f;
        shrink[r] = FIRST ? 1.0f : ptx::ex2_approx_ftz(rows.most[r] * factor - base[r]);
        rows.most[r] = most[r];
        rows.sum[r] = FIRST ? 0.0f : rows.sum[r] * shrink[r];
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const int r = i / 2 % 2;
        scores[i] = ptx::ex2_approx_ftz(__fmaf_rn(scores[i], factor, -base[r]));
        rows.sum[r] += scores[i];
    }
}

// Weights as the first operand of the next product; the accumulators of 16 keys are its fragment.
template <typename T, int N>
inline void pack_weights(unsigned (&packed)[N / 2], const float (&weights)[N]) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) packed[i] = pack2<T>(weights[2 * i], weights[2 * i + 1]);
}

}  // namespace ge2
