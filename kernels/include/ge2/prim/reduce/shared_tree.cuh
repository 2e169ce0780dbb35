/*--- toml
primitive = "reduce"
summary = "binary tree over shared memory, one barrier per level; every thread gets the result"
numerics = "tree"
scopes = ["warp", "block"]
---*/
#pragma once

namespace ge2::reduce::shared_tree {

// THREADS consecutive threads (a power of two) reduce together; all threads of the block take part.
template <int THREADS>
struct Group {
    static_assert((THREADS & (THREADS - 1)) == 0, "a power of two");
    static constexpr int kBytes = 64;
    static constexpr int scratch_bytes(int groups) { return groups * THREADS * kBytes; }

    unsigned char* scratch;

    explicit Group(unsigned char* memory)
        : scratch(memory + threadIdx.x / THREADS * (THREADS * kBytes)) {}

    // After the last use.
    void leave() {}

    template <typename T, typename Merge>
    T all(T value, Merge merge) {
        static_assert(sizeof(T) <= kBytes, "a state has at most 64 bytes");
        T* slots = reinterpret_cast<T*>(scratch);
        const int rank = static_cast<int>(threadIdx.x) % THREADS;
        slots[rank] = value;
        __syncthreads();
#pragma unroll 1
        for (int half = THREADS / 2; half > 0; half /= 2) {
            if (rank < half) slots[rank] = merge(slots[rank], slots[rank + half]);
            __syncthreads();
        }
        const T sum = slots[0];
        __syncthreads();
        return sum;
    }

    template <typename T, typename Merge>
    T all_symmetric(T value, Merge merge) {
        return all(value, merge);
    }
};

}  // namespace ge2::reduce::shared_tree
