/*--- toml
primitive = "reduce"
summary = "shuffles within warps, then one value per warp through shared memory; every thread gets the result"
numerics = "butterfly-warps"
scopes = ["block"]
---*/
#pragma once

#include <ge2/prim/reduce/warp_shuffle.cuh>
#include <ge2/ptx/barrier.cuh>

namespace ge2::reduce::block {

// THREADS consecutive threads (32 times a power of two) reduce together; all threads of the block take
// part, or with a named BARRIER only the first THREADS. Two buffers in turn save the barrier between
// one use and the next.
template <int THREADS, int BARRIER = 0>
struct Group {
    static constexpr int kWarps = THREADS / 32;
    static_assert(THREADS % 32 == 0 && kWarps <= 32 && (kWarps & (kWarps - 1)) == 0, "warps");
    static constexpr int kBufferBytes = kWarps * 64;
    static constexpr int scratch_bytes(int groups) { return groups * 2 * kBufferBytes; }

    unsigned char* scratch;
    int turn;

    explicit Group(unsigned char* memory)
        : scratch(memory + threadIdx.x / THREADS * (2 * kBufferBytes)), turn(0) {}

    // After the last use.
    void leave() {}

    template <typename T, typename Merge>
    T all(T value, Merge merge) {
        return across(warp_shuffle::Group<32>(nullptr).all(value, merge), merge);
    }

    template <typename T, typename Merge>
    T all_symmetric(T value, Merge merge) {
        return across(warp_shuffle::Group<32>(nullptr).all_symmetric(value, merge), merge);
    }

    // Every warp merges the warps' values by the same butterfly.
    template <typename T, typename Merge>
    T across(T value, Merge merge) {
        static_assert(sizeof(T) <= 64, "a state has at most 64 bytes");
        T* slots = reinterpret_cast<T*>(scratch + turn * kBufferBytes);
        turn ^= 1;
        if ((threadIdx.x & 31) == 0) slots[threadIdx.x % THREADS / 32] = value;
        if constexpr (BARRIER != 0) {
            ptx::named_barrier_sync(BARRIER, THREADS);
        } else {
            __syncthreads();
        }
        const T mine = slots[threadIdx.x % kWarps];
        return warp_shuffle::Group<kWarps>(nullptr).all(mine, merge);
    }
};

}  // namespace ge2::reduce::block
