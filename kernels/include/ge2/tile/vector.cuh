// Loads and stores of a few neighbouring elements: as one access, replicated, or one by one.
#pragma once

#include <ge2/ptx/address.cuh>
#include <ge2/ptx/cp_async.cuh>
#include <ge2/types.cuh>

namespace ge2 {

// How an operand is walked along the vectorised axis.
constexpr int kUnit = 0;       // neighbours in memory, aligned: one access
constexpr int kBroadcast = 1;  // the same element for all
constexpr int kStrided = 2;    // any step, one access per element

// Reads lanes [skip, valid) of V elements from `from + at`; the memory of the others is not touched
// and they become zero. WHOLE promises that skip is 0 and valid 0 or V.
template <int MODE, bool WHOLE = false, typename T, int V, typename Offset>
inline void load_lanes(Vec<T, V>& to, const T* from, Offset at, int valid, Offset step = 1,
                       int skip = 0) {
    if constexpr (MODE == kBroadcast) {
        const T one = valid > skip ? from[at] : T{};
#pragma unroll
        for (int e = 0; e < V; ++e) to.v[e] = one;
    } else {
        if constexpr (MODE == kUnit) {
            if (skip <= 0 && valid >= V) {
                to = *reinterpret_cast<const Vec<T, V>*>(from + at);
                return;
            }
        }
#pragma unroll
        for (int e = 0; e < V; ++e) {
            const bool inside = !(WHOLE && MODE == kUnit) && e >= skip && e < valid;
            to.v[e] = inside ? from[at + static_cast<Offset>(e) * step] : T{};
        }
    }
}

// Reads lanes [skip, valid) of V neighbours from `from + at`, where only `from` is aligned: two aligned
// accesses, and the bytes in between are shifted out. Nothing from element n on is touched.
template <bool WHOLE, typename T, int V, typename Offset>
inline void load_near(Vec<T, V>& to, const T* from, Offset at, int valid, int skip, long long n) {
    constexpr int kWords = static_cast<int>(sizeof(T)) * V / 4;
    if constexpr (kWords == 2 || kWords == 4) {
        const int past = static_cast<int>(at) & (V - 1);
        if (skip <= 0 && valid >= V && at - past + 2 * V <= n) {
            union Two {
                Vec<T, V> vec[2];
                unsigned word[2 * kWords];
            };
            const Vec<T, V>* vectors = reinterpret_cast<const Vec<T, V>*>(from + (at - past));
            Two two{{vectors[0], vectors[1]}};
            const int bytes = past * static_cast<int>(sizeof(T));
#pragma unroll
            for (int jump = kWords / 2; jump > 0; jump /= 2) {
                const bool moves = (bytes / 4 & jump) != 0;
#pragma unroll
                for (int w = 0; w + jump < 2 * kWords; ++w)
                    two.word[w] = moves ? two.word[w + jump] : two.word[w];
            }
            if constexpr (sizeof(T) < 4) {
#pragma unroll
                for (int w = 0; w < kWords; ++w)
                    two.word[w] = __funnelshift_r(two.word[w], two.word[w + 1], bytes % 4 * 8);
            }
            to = two.vec[0];
            return;
        }
    }
    if (WHOLE && valid < V) valid = 0;
#pragma unroll
    for (int e = 0; e < V; ++e)
        to.v[e] = e >= skip && e < valid ? from[at + static_cast<Offset>(e)] : T{};
}

// Writes lanes [skip, valid) of V elements to `to + at`.
template <int MODE, bool WHOLE = false, typename T, int V, typename Offset>
inline void store_lanes(const Vec<T, V>& from, T* to, Offset at, int valid, Offset step = 1,
                        int skip = 0) {
    if constexpr (MODE == kUnit) {
        if (skip <= 0 && valid >= V) {
            *reinterpret_cast<Vec<T, V>*>(to + at) = from;
            return;
        }
        if constexpr (WHOLE) return;
    }
#pragma unroll
    for (int e = 0; e < V; ++e)
        if (e >= skip && e < valid) to[at + static_cast<Offset>(e) * step] = from.v[e];
}

// Starts a copy of lanes [skip, valid) of V elements, aligned to all of them, to shared memory, where
// this thread reads them after cp_async_wait. Lanes from valid on become zero.
template <typename T, int V>
inline void copy_lanes(Vec<T, V>* to, const T* from, int valid, int skip) {
    constexpr int kBytes = static_cast<int>(sizeof(T)) * V;
    if constexpr (kBytes >= 4) {
        if (skip <= 0) {
            const unsigned smem = ptx::smem_address(to);
            const int bytes = valid * static_cast<int>(sizeof(T));
            if constexpr (kBytes == 16) {
                ptx::cp_async_16(smem, from, bytes);
            } else if constexpr (kBytes == 8) {
                ptx::cp_async_8(smem, from, bytes);
            } else {
                ptx::cp_async_4(smem, from, bytes);
            }
            return;
        }
    }
#pragma unroll
    for (int e = 0; e < V; ++e) to->v[e] = e >= skip && e < valid ? from[e] : T{};
}

}  // namespace ge2
