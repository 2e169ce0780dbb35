/*--- toml
primitive = "reduce"
summary = "within each block, then the blocks of a cluster read each other's shared memory; every thread gets the result"
numerics = "butterfly-warps-blocks"
scopes = ["cluster"]
arch = ["sm_90+"]
---*/
#pragma once

#include <ge2/prim/reduce/block.cuh>
#include <ge2/ptx/address.cuh>
#include <ge2/ptx/cluster.cuh>
#include <ge2/tile/words.cuh>

namespace ge2::reduce::cluster {

// All threads of a cluster of BLOCKS (a power of two up to 16) reduce together. Slots are used in
// turn, so that one cluster barrier per use is enough.
template <int THREADS, int BLOCKS>
struct Group {
    static constexpr int kSlotBytes = 64;
    static constexpr int kSlots = block::Group<THREADS>::scratch_bytes(1);
    static constexpr int scratch_bytes() { return kSlots + 2 * kSlotBytes; }

    block::Group<THREADS> inside;
    unsigned char* slots;
    int turn;

    explicit Group(unsigned char* scratch) : inside(scratch), slots(scratch + kSlots), turn(0) {}

    // No block may end while others read its slots.
    void leave() { ptx::cluster_sync(); }

    template <typename T, typename Merge>
    T all(T value, Merge merge) {
        return across(inside.all(value, merge), merge);
    }

    template <typename T, typename Merge>
    T all_symmetric(T value, Merge merge) {
        return across(inside.all_symmetric(value, merge), merge);
    }

    template <typename T, typename Merge>
    T across(T value, Merge merge) {
        static_assert(sizeof(T) <= kSlotBytes, "a state has at most 64 bytes");
        unsigned char* slot = slots + turn * kSlotBytes;
        turn ^= 1;
        if (threadIdx.x == 0) *reinterpret_cast<T*>(slot) = value;
        ptx::cluster_sync();
        const unsigned remote =
            ptx::map_shared(ptx::smem_address(slot), threadIdx.x % static_cast<unsigned>(BLOCKS));
        Words<T> words{value};
#pragma unroll
        for (int w = 0; w < static_cast<int>(sizeof(T) / 4); ++w)
            words.word[w] = __float_as_uint(ptx::load_cluster_f32(remote + 4 * w));
        return warp_shuffle::Group<BLOCKS>(nullptr).all(words.value, merge);
    }
};

}  // namespace ge2::reduce::cluster
