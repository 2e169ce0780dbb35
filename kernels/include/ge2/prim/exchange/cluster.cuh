/*--- toml
primitive = "exchange"
summary = "blocks of a cluster store small states asynchronously into each other's shared memory and wait on mbarriers there"
numerics = "butterfly-blocks"
scopes = ["cluster"]
arch = ["sm_90+"]
---*/
#pragma once

#include <ge2/prim/reduce/warp_shuffle.cuh>
#include <ge2/ptx/address.cuh>
#include <ge2/ptx/cluster.cuh>
#include <ge2/ptx/fence.cuh>
#include <ge2/ptx/mbarrier.cuh>
#include <ge2/tile/packet.cuh>

namespace ge2::exchange {

// BLOCKS blocks (a power of two up to 16) merge a state per round. Every block holds a slot of each
// block and an mbarrier per round that is under way. A store counts itself at the receiver's mbarrier:
// nobody meets at a cluster barrier, which would wait for the slowest block's every warp. Slots are
// used in turn as in grid.cuh.
template <typename State, int BLOCKS>
struct Cluster {
    static_assert(BLOCKS >= 2 && BLOCKS <= 16 && (BLOCKS & (BLOCKS - 1)) == 0, "blocks");
    static constexpr int kPackets = Packets<State>::kCount;
    static constexpr int kRounds = 4;
    static constexpr int kRoundBytes = 16 * BLOCKS * kPackets;
    static constexpr int kSlotsAt = 8 * kRounds;
    static constexpr int kSharedBytes = kSlotsAt + kRounds * kRoundBytes;

    unsigned char* memory;
    unsigned bars;
    int rank;

    // `shared` is aligned to 16 bytes.
    Cluster(unsigned*, unsigned char* shared, long long, int, int rank_in_group)
        : memory(shared), bars(ptx::smem_address(shared)), rank(rank_in_group) {}

    static unsigned bar_of(unsigned round) { return 8 * (round % kRounds); }
    static unsigned slot_of(unsigned round, int block) {
        return kSlotsAt + (round % kRounds) * kRoundBytes + static_cast<unsigned>(block) * 16 * kPackets;
    }

    // By all threads, once before the first round.
    void enter() const {
        if (threadIdx.x == 0) {
#pragma unroll
            for (int r = 0; r < kRounds; ++r) ptx::mbarrier_init(bars + 8 * r, 1);
            ptx::fence_mbarrier_init();
#pragma unroll
            for (int r = 0; r < kRounds; ++r)
                ptx::mbarrier_arrive_expect_tx(bars + 8 * r, kRoundBytes);
        }
        ptx::cluster_sync();
    }

    // By one warp whose lanes all have the state: a lane stores to one block.
    void publish(unsigned round, const State& state) const {
        const unsigned block = threadIdx.x & 31;
        if (block >= BLOCKS) return;
        const Packets<State> packets(state, round + 1);
        const unsigned remote = ptx::map_shared(bars, block);
#pragma unroll
        for (int p = 0; p < kPackets; ++p)
            ptx::store_async_16(remote + slot_of(round, rank) + 16 * p, packets.packet[p],
                                remote + bar_of(round));
    }

    // By one warp. The mbarrier is armed again before anybody can know that this round has been read.
    template <typename Merge>
    State collect(unsigned round, State, Merge merge) const {
        const unsigned bar = bars + bar_of(round);
        ptx::mbarrier_wait(bar, round / kRounds & 1u);
        __syncwarp();
        if ((threadIdx.x & 31) == 0) ptx::mbarrier_arrive_expect_tx(bar, kRoundBytes);
        const int block = static_cast<int>(threadIdx.x) & (BLOCKS - 1);
        const uint4* from = reinterpret_cast<const uint4*>(memory + slot_of(round, block));
        Packets<State> found;
#pragma unroll
        for (int p = 0; p < kPackets; ++p) found.packet[p] = from[p];
        return reduce::warp_shuffle::Group<BLOCKS>(nullptr).all(found.state(), merge);
    }

    // By all threads, after the last round: no block may end while stores to it are under way.
    template <int THREADS>
    void leave() const {
        ptx::cluster_sync();
    }
};

}  // namespace ge2::exchange
