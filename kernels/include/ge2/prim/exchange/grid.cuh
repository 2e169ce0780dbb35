/*--- toml
primitive = "exchange"
summary = "blocks of a group publish small states through global memory and poll for each other's; needs a cooperative launch"
numerics = "butterfly-blocks"
---*/
#pragma once

#include <ge2/prim/reduce/warp_shuffle.cuh>
#include <ge2/ptx/ldst.cuh>
#include <ge2/tile/words.cuh>

namespace ge2::exchange {

// `blocks` blocks merge a state per round. A word travels as 8 bytes, value and round number, which
// arrive as one: no fence stands between writing a state and its being seen. Slots are zero before
// the first round and zeroed by the last block to leave.
//
// A block may publish round k + 1 before it has collected round k. Who publishes round k + 4 has
// collected round k + 2, so everybody had published that and had collected round k: four slots.
template <typename State>
struct Grid {
    static constexpr int kWords = static_cast<int>(sizeof(State) / 4);
    static constexpr int kRounds = 4;
    // 32-bit words in the semaphores for a group: a ticket, padded, then the slots.
    static constexpr long long words(long long blocks) { return 2 + blocks * kRounds * kWords * 2; }

    unsigned* ticket;
    unsigned long long* slots;
    int blocks;
    int rank;

    Grid(unsigned* semaphores, long long group, int blocks_of_group, int rank_in_group)
        : ticket(semaphores + group * words(blocks_of_group)),
          slots(reinterpret_cast<unsigned long long*>(ticket + 2)),
          blocks(blocks_of_group),
          rank(rank_in_group) {}

    unsigned long long* slot(unsigned round, int block) const {
        return slots + (static_cast<long long>(round % kRounds) * blocks + block) * kWords;
    }

    // By one thread.
    void publish(unsigned round, const State& state) const {
        const Words<State> words{state};
        unsigned long long* to = slot(round, rank);
        const unsigned long long tag = static_cast<unsigned long long>(round + 1) << 32;
#pragma unroll
        for (int w = 0; w < kWords; ++w) ptx::store_relaxed_64(to + w, tag | words.word[w]);
    }

    // By one warp: each lane merges its blocks in order, then the lanes merge.
    template <typename Merge>
    State collect(unsigned round, State neutral, Merge merge) const {
        State total = neutral;
        for (int block = static_cast<int>(threadIdx.x) & 31; block < blocks; block += 32) {
            Words<State> words{neutral};
            const unsigned long long* from = slot(round, block);
#pragma unroll
            for (int w = 0; w < kWords; ++w) {
                unsigned long long found = ptx::load_relaxed_64(from + w);
                while (static_cast<unsigned>(found >> 32) != round + 1)
                    found = ptx::load_relaxed_64(from + w);
                words.word[w] = static_cast<unsigned>(found);
            }
            total = merge(total, words.value);
        }
        __syncwarp();
        return reduce::warp_shuffle::Group<32>(nullptr).all(total, merge);
    }

    // By all threads, after the last round.
    template <int THREADS>
    void leave(unsigned* shared_word) const {
        __syncthreads();
        if (threadIdx.x == 0) *shared_word = ptx::atomic_add_acq_rel(ticket, 1u);
        __syncthreads();
        if (*shared_word != static_cast<unsigned>(blocks) - 1u) return;
        for (int i = static_cast<int>(threadIdx.x); i < blocks * kRounds * kWords; i += THREADS)
            slots[i] = 0;
        if (threadIdx.x == 0) *ticket = 0;
    }
};

}  // namespace ge2::exchange
