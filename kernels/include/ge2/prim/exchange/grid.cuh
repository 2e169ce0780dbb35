/*--- toml
primitive = "exchange"
summary = "blocks of a group publish small states through global memory and poll for each other's; needs a cooperative launch"
numerics = "butterfly-blocks"
scopes = ["grid"]
---*/
#pragma once

#include <ge2/prim/reduce/warp_shuffle.cuh>
#include <ge2/ptx/ldst.cuh>
#include <ge2/tile/packet.cuh>

namespace ge2::exchange {

// `blocks` blocks merge a state per round. Three words travel as 16 bytes with the number of their
// round, which arrive as one: no fence stands between writing a state and its being seen, and a poll
// that finds the number has the state. Slots are zero before the first round and zeroed by the last
// block to leave.
//
// A block may publish round k + 1 before it has collected round k. Who publishes round k + 4 has
// collected round k + 2, so everybody had published that and had collected round k: four slots.
template <typename State>
struct Grid {
    static constexpr int kPackets = Packets<State>::kCount;
    static constexpr int kRounds = 4;
    static constexpr int kAtOnce = 4;  // slots that a lane has under way
    static constexpr int kSharedBytes = 16;
    // 32-bit words in the semaphores for a group: a ticket, padded, then the slots.
    static constexpr long long words(long long blocks) { return 4 + blocks * kRounds * kPackets * 4; }

    unsigned* ticket;
    uint4* slots;
    unsigned* is_last;
    int blocks;
    int rank;

    Grid(unsigned* semaphores, unsigned char* shared, long long group, int blocks_of_group,
         int rank_in_group)
        : ticket(semaphores + group * words(blocks_of_group)),
          slots(reinterpret_cast<uint4*>(ticket + 4)),
          is_last(reinterpret_cast<unsigned*>(shared)),
          blocks(blocks_of_group),
          rank(rank_in_group) {}

    uint4* slot(unsigned round, int block) const {
        return slots + (static_cast<long long>(round % kRounds) * blocks + block) * kPackets;
    }

    // By all threads, once before the first round.
    void enter() const { __syncthreads(); }

    // By one warp whose lanes all have the state.
    void publish(unsigned round, const State& state) const {
        if ((threadIdx.x & 31) != 0) return;
        const Packets<State> packets(state, round + 1);
#pragma unroll
        for (int p = 0; p < kPackets; ++p)
            ptx::store_relaxed_128(slot(round, rank) + p, packets.packet[p]);
    }

    // By one warp: each lane merges its blocks in order, then the lanes merge. All of a lane's slots
    // are on their way before the first is looked at.
    template <typename Merge>
    State collect(unsigned round, State neutral, Merge merge) const {
        State total = neutral;
        for (int base = static_cast<int>(threadIdx.x) & 31; base < blocks; base += 32 * kAtOnce) {
            Packets<State> found[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i)
                if (base + 32 * i < blocks) load(found[i], slot(round, base + 32 * i));
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                if (base + 32 * i >= blocks) continue;
                while (!found[i].is_of(round + 1)) load(found[i], slot(round, base + 32 * i));
                total = merge(total, found[i].state());
            }
        }
        __syncwarp();
        return reduce::warp_shuffle::Group<32>(nullptr).all(total, merge);
    }

    static void load(Packets<State>& to, const uint4* from) {
#pragma unroll
        for (int p = 0; p < kPackets; ++p) to.packet[p] = ptx::load_relaxed_128(from + p);
    }

    // By all threads, after the last round.
    template <int THREADS>
    void leave() const {
        __syncthreads();
        if (threadIdx.x == 0) *is_last = ptx::atomic_add_acq_rel(ticket, 1u) + 1u;
        __syncthreads();
        if (*is_last != static_cast<unsigned>(blocks)) return;
        for (int i = static_cast<int>(threadIdx.x); i < blocks * kRounds * kPackets; i += THREADS)
            slots[i] = uint4{0, 0, 0, 0};
        if (threadIdx.x == 0) *ticket = 0;
    }
};

}  // namespace ge2::exchange
