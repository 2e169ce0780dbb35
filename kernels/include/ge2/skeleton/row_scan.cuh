// Running sums and products along rows: blocks of a row one after the other, or a thread per row.
#pragma once

#include <ge2/tile/vector.cuh>
#include <ge2/tile/words.cuh>

namespace ge2 {

struct ScanSum {
    template <typename T>
    static T neutral() {
        return T(0);
    }
    template <typename T>
    static T join(T a, T b) {
        return a + b;
    }
};

struct ScanProduct {
    template <typename T>
    static T neutral() {
        return T(1);
    }
    template <typename T>
    static T join(T a, T b) {
        return a * b;
    }
};

// The value of a lower lane of the warp; lanes without one keep their own.
template <typename T>
inline T shuffle_up(const T& value, int distance) {
    Words<T> words{value};
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / 4); ++i)
        words.word[i] = __shfl_up_sync(0xffffffffu, words.word[i], distance);
    return words.value;
}

// Joins the values of the lanes up to this one, in order.
template <typename Way, typename T>
inline T scan_warp(T value) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const T other = shuffle_up(value, distance);
        if (lane >= distance) value = Way::join(other, value);
    }
    return value;
}

// One tile of THREADS * V neighbouring elements: v becomes the running value of each, starting from
// carry, which becomes that of the last. EXCLUSIVE leaves the element itself out.
template <typename Way, int THREADS, int V, bool EXCLUSIVE, typename T>
inline void scan_tile(T (&v)[V], T& carry, T* shared) {
    constexpr int kWarps = THREADS / 32;
    T own = v[0];
#pragma unroll
    for (int e = 1; e < V; ++e) own = Way::join(own, v[e]);
    const T upto = scan_warp<Way>(own);
    const T left = shuffle_up(upto, 1);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    T before = carry;
    if constexpr (kWarps > 1) {
        if ((threadIdx.x & 31) == 31) shared[warp] = upto;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            if (w == warp) before = carry;
            carry = Way::join(carry, shared[w]);
        }
        __syncthreads();
    } else {
        Words<T> last{upto};
#pragma unroll
        for (int i = 0; i < static_cast<int>(sizeof(T) / 4); ++i)
            last.word[i] = __shfl_sync(0xffffffffu, last.word[i], 31);
        carry = Way::join(carry, last.value);
    }
    T running = (threadIdx.x & 31) == 0 ? before : Way::join(before, left);
#pragma unroll
    for (int e = 0; e < V; ++e) {
        const T next = Way::join(running, v[e]);
        v[e] = EXCLUSIVE ? running : next;
        running = next;
    }
}

}  // namespace ge2
