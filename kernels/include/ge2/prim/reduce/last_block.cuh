/*--- toml
primitive = "reduce"
summary = "within each block, then the last block to arrive merges the blocks' states in order; only that block has the result"
numerics = "butterfly-warps-last-block"
scopes = ["grid"]
---*/
#pragma once

#include <ge2/prim/reduce/block.cuh>
#include <ge2/tile/words.cuh>

namespace ge2::reduce::last_block {

// `blocks` blocks of THREADS reduce a row together, through global memory. A state per block lies in
// the workspace; the ticket is zero at entry and zero again at exit.
template <int THREADS>
struct Group {
    block::Group<THREADS> inside;
    unsigned* is_last;
    void* workspace;
    unsigned* ticket;
    long long blocks;
    long long rank;

    Group(unsigned char* scratch, void* states, unsigned* row_ticket, long long blocks_of_row,
          long long rank_in_row)
        : inside(scratch + 16),
          is_last(reinterpret_cast<unsigned*>(scratch)),
          workspace(states),
          ticket(row_ticket),
          blocks(blocks_of_row),
          rank(rank_in_row) {}

    // Whether this thread holds the result.
    bool owns() const { return threadIdx.x == 0 && *is_last != 0; }

    void leave() {}

    template <typename T, typename Merge>
    T all(T value, Merge merge) {
        T total = inside.all(value, merge);
        T* states = static_cast<T*>(workspace);
        if (threadIdx.x == 0) {
            states[rank] = total;
            __threadfence();
            *is_last = atomicAdd(ticket, 1u) == static_cast<unsigned>(blocks) - 1u ? 1u : 0u;
        }
        __syncthreads();
        if (*is_last == 0) return total;
        __threadfence();
        // A thread merges neighbouring states, so that the order is that of the blocks.
        const long long each = (blocks + THREADS - 1) / THREADS;
        const long long first = threadIdx.x * each;
        bool any = false;
        for (long long i = first; i < first + each && i < blocks; ++i) {
            // Other blocks wrote these: read past the first-level cache.
            const volatile unsigned* from = reinterpret_cast<const volatile unsigned*>(states + i);
            Words<T> words{value};
#pragma unroll
            for (int w = 0; w < static_cast<int>(sizeof(T) / 4); ++w) words.word[w] = from[w];
            total = any ? merge(total, words.value) : words.value;
            any = true;
        }
        if (threadIdx.x == 0) *ticket = 0;
        return across(total, any, merge);
    }

    // Threads without a state take no part: a flag travels along.
    template <typename T, typename Merge>
    T across(T value, bool any, Merge merge) {
        struct Maybe {
            T value;
            unsigned any;
        };
        return inside
            .all(Maybe{value, any ? 1u : 0u},
                 [&](const Maybe& a, const Maybe& b) {
                     if (a.any == 0) return b;
                     if (b.any == 0) return a;
                     return Maybe{merge(a.value, b.value), 1u};
                 })
            .value;
    }
};

}  // namespace ge2::reduce::last_block
