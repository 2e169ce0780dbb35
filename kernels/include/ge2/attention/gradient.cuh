// What the kernels of attention's gradients share: statistics of queries, and who sees whom.
#pragma once

#include <ge2/attention/place.cuh>
#include <ge2/attention/score.cuh>
#include <ge2/types.cuh>

namespace ge2 {

// Of a query: its log-sum-exp as an exponent of 2, and the sum of d * y. That of a query that sees no
// key, or is none, makes all of its weights 0: exp2(score - inf).
template <typename C>
using Statistics = Vec<C, 2>;

template <typename C>
inline Statistics<C> no_statistics() {
    return {static_cast<C>(inf_f32()), C(0)};
}

// The sum of d * y over a row of n elements, V of which are read at once, by a warp; every lane gets
// it.
template <typename C, int V, typename T>
inline C row_product(const T* d, const T* y, int n) {
    C sum = C(0);
    for (int i = threadIdx.x % 32 * V; i < n; i += 32 * V) {
        const Vec<T, V> a = *reinterpret_cast<const Vec<T, V>*>(d + i);
        const Vec<T, V> b = *reinterpret_cast<const Vec<T, V>*>(y + i);
#pragma unroll
        for (int e = 0; e < V; ++e) {
            sum += static_cast<C>(to_compute(a[e])) * static_cast<C>(to_compute(b[e]));
        }
    }
#pragma unroll
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other);
    return sum;
}

// Queries that may see any of the keys [first, first + count).
inline KeyRange queries_of_keys(const KeyBand& band, int queries, int first, int count) {
    const int begin = first - band.offset - band.right;
    const int end = first + count + band.left - band.offset;
    return {begin > 0 ? begin : 0, first >= band.length ? 0 : end < queries ? end : queries};
}

}  // namespace ge2
