// Long rows, each element read once: groups of blocks walk over rows, each block with a slice of
// columns of its own, and a ring of shared-memory stages is filled ahead.
//
// A warp of its own, the keeper, waits for what comes from outside: it collects the group's states and
// refills stages, so that the latency of both lies beside the others' arithmetic.
#pragma once

#include <ge2/ptx/address.cuh>
#include <ge2/ptx/fence.cuh>
#include <ge2/ptx/mbarrier.cuh>
#include <ge2/skeleton/row_stages.cuh>
#include <ge2/tile/opaque.cuh>

namespace ge2 {

// A thread's chunks of one stage; read from shared memory anew in each pass. FULL: all of them exist.
template <typename Row, int THREADS, int V, int U, bool FULL>
struct StagedPart {
    const Row& row;
    const unsigned char* stage;
    typename Row::Column start;  // column of the slice
    int chunks;                  // of the slice

    int place(int u) const { return u * THREADS + static_cast<int>(threadIdx.x); }
    bool has(int u) const { return FULL || place(u) < chunks; }
    // Whether any thread of the block has one.
    bool any(int u) const { return FULL || u * THREADS < chunks; }
    // The place, or the slice's last where there is no chunk.
    int near(int u) const { return has(u) ? place(u) : chunks - 1; }
    typename Row::Column column(int at) const { return start + at * V; }

    typename Row::template Chunk<V> chunk(int at) const {
        typename Row::template Chunk<V> x;
        row.template load_staged<V, THREADS * U>(x, stage, at);
        return x;
    }

    // The barrier between passes keeps the compiler from holding what it has loaded.
    template <typename Visit>
    void each(unsigned, Visit visit) const {
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (!has(u)) continue;
            const typename Row::template Chunk<V> x = chunk(place(u));
#pragma unroll
            for (int e = 0; e < V; ++e) visit(x.value(e), column(place(u)) + e);
        }
    }
};

// A place in a ring of STAGES and the parity of the mbarrier phase there.
template <int STAGES>
struct RingPlace {
    int stage = 0;
    unsigned parity = 0;

    void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1u;
        }
    }
};

// Exchange: how a group's blocks merge states, see prim/exchange. AHEAD: the state of row k + 1 is
// published before row k is finished, so that no block waits for messages on their way. KEEP: extras
// are the same for all rows and stay in registers. FULL: each thread has U chunks in each row.
template <typename Op, typename Row, typename Exchange, typename Group, int THREADS, int V, int U,
          int STAGES, bool AHEAD, bool KEEP, bool FULL, typename Linear>
struct RowRing {
    using State = typename Op::State;
    using Values = typename Op::Values;
    using Compute = typename Op::Compute;
    using Part = StagedPart<Row, THREADS, V, U, FULL>;
    using Extras = typename Row::template ExtraChunk<V>;
    using Place = RingPlace<STAGES>;

    static constexpr int kBlockThreads = THREADS + 32;
    static constexpr Linear kAhead = AHEAD ? 1 : 0;
    static constexpr int kStageBytes = Row::template staged_bytes<V>(THREADS * U);
    static constexpr int kFirstBytes = Op::kPivot ? Row::kFirstBytes : 0;
    // mbarriers: stages full, stages empty, state ready. Then that state, the group's scratch, what
    // the exchange needs, each stage's first elements, and the stages.
    static constexpr int kEmpty = 8 * STAGES;
    static constexpr int kReady = 16 * STAGES;
    static constexpr int kTotal = 128;
    static constexpr int kGroup = kTotal + 64;
    static constexpr int kExchange = kGroup + Group::scratch_bytes(1);
    static constexpr int kFirsts = kExchange + Exchange::kSharedBytes;
    static constexpr int kStagesAt = (kFirsts + STAGES * kFirstBytes + 1023) / 1024 * 1024;
    static_assert(kReady + 8 <= kTotal && sizeof(State) <= 64, "shared memory");
    static constexpr int bytes() { return kStagesAt + STAGES * kStageBytes; }

    static State merge(const State& a, const State& b) { return Op::merge(a, b); }

    unsigned char* memory;
    unsigned bars;
    Linear group, groups, mine;  // rows group, group + groups, ...: `mine` of them
    typename Row::Column start;  // first column of this block's slice
    int chunks;                  // in the slice

    template <typename Args>
    static void run(const Args& args, unsigned char* memory) {
        const int blocks = static_cast<int>(args.splits);
        RowRing ring;
        ring.memory = memory;
        ring.bars = ptx::smem_address(memory);
        const Linear rows = static_cast<Linear>(args.rows);
        ring.group = static_cast<Linear>(blockIdx.x / static_cast<unsigned>(blocks));
        ring.groups = static_cast<Linear>(gridDim.x / static_cast<unsigned>(blocks));
        const int rank = static_cast<int>(blockIdx.x) - static_cast<int>(ring.group) * blocks;
        ring.mine = ring.group < rows ? (rows - ring.group + ring.groups - 1) / ring.groups : 0;
        // Pairs of chunks: what the copy engine moves is a multiple of 16 bytes.
        const long long all = args.n / V;
        const long long each = ((all + blocks - 1) / blocks + 1) / 2 * 2;
        const long long left = all - rank * each;
        ring.chunks = static_cast<int>(left >= each ? each : (left > 0 ? left : 0));
        ring.start = static_cast<typename Row::Column>(rank * each * V);

        const Exchange exchange(args.semaphores, memory + kExchange, ring.group, blocks, rank);
        if (threadIdx.x == 0) {
#pragma unroll
            for (int s = 0; s < STAGES; ++s) {
                ptx::mbarrier_init(ring.bars + 8 * s, 1);
                ptx::mbarrier_init(ring.bars + kEmpty + 8 * s, THREADS / 32);
            }
            ptx::mbarrier_init(ring.bars + kReady, 1);
            ptx::fence_mbarrier_init();
        }
        exchange.enter();
        if (threadIdx.x >= THREADS) {
            ring.keep(args, exchange);
        } else {
            ring.work(args, exchange);
        }
        exchange.template leave<kBlockThreads>();
    }

    template <typename Args>
    Row row_of(const Args& args, Linear k) const {
        return Row(args, group + k * groups);
    }
    unsigned char* stage(int number) const { return memory + kStagesAt + number * kStageBytes; }
    unsigned char* firsts(int number) const { return memory + kFirsts + number * kFirstBytes; }

    // The keeper.
    template <typename Args>
    void keep(const Args& args, const Exchange& exchange) const {
        const bool leads = (threadIdx.x & 31) == 0;
        auto refill = [&](Linear k, int number) {
            const unsigned bar = bars + 8 * static_cast<unsigned>(number);
            ptx::mbarrier_arrive_expect_tx(bar, Row::template staged_bytes<V>(chunks) + kFirstBytes);
            const Row row = row_of(args, k);
            if (chunks > 0)
                row.template stage<V, THREADS * U>(stage(number), start, chunks, bar);
            if constexpr (Op::kPivot) row.stage_first(firsts(number), bar);
        };
        if (leads)
            for (int s = 0; s < STAGES && s < static_cast<int>(mine); ++s) refill(s, s);
        Place place;
        for (Linear k = 0; k < mine; ++k, place.advance()) {
            const State total = exchange.collect(static_cast<unsigned>(k), Op::init(), merge);
            if (leads) {
                *reinterpret_cast<State*>(memory + kTotal) = total;
                ptx::mbarrier_arrive(bars + kReady);
            }
            // After this the state may be replaced, too.
            ptx::mbarrier_wait(bars + kEmpty + 8 * static_cast<unsigned>(place.stage), place.parity);
            if (leads && k + STAGES < mine) refill(k + STAGES, place.stage);
            __syncwarp();
        }
    }

    // All other warps.
    template <typename Args>
    void work(const Args& args, const Exchange& exchange) const {
        Extras kept[KEEP ? U : 1];
        if constexpr (KEEP) {
            const Row row = row_of(args, 0);
            const Part part{row, nullptr, start, chunks};
#pragma unroll
            for (int u = 0; u < U; ++u)
                row.load(kept[u], part.column(part.place(u)), part.has(u) ? V : 0);
        }
        Group reduce(memory + kGroup);
        Place filled, finished;
        for (Linear k = 0; k < mine + kAhead; ++k) {
            if (k < mine) {
                ptx::mbarrier_wait(bars + 8 * static_cast<unsigned>(filled.stage), filled.parity);
                const Row row = row_of(args, k);
                const Part part{row, stage(filled.stage), start, chunks};
                const State state = state_of(args, part, reduce, first_of(row, filled.stage));
                if (threadIdx.x < 32) exchange.publish(static_cast<unsigned>(k), state);
                filled.advance();
            }
            if (k >= kAhead) {
                const Linear done = k - kAhead;
                ptx::mbarrier_wait(bars + kReady, static_cast<unsigned>(done) & 1u);
                finish(args, exchange, done, finished.stage, kept);
                __syncwarp();
                if ((threadIdx.x & 31) == 0)
                    ptx::mbarrier_arrive(bars + kEmpty + 8 * static_cast<unsigned>(finished.stage));
                finished.advance();
            }
        }
    }

    // The first element of a staged row, for operators that subtract it.
    Values first_of(const Row& row, int number) const {
        if constexpr (Op::kPivot) {
            return row.staged_first(firsts(number));
        } else {
            return Values{};
        }
    }

    // The state of this block's slice of a row.
    template <typename Args>
    State state_of(const Args& args, const Part& part, Group& reduce, const Values& first) const {
        State state = Op::init();
        if constexpr (Op::kStages > 0) {
            if (FULL || chunks > 0) {
                const auto n = static_cast<Compute>(chunks * V);
                typename Op::Seen seen{};
                run_stages<Op, 0>(seen, part, reduce, first, n, args);
                state = Op::collect(seen, n);
            }
        } else {
            part.each(0, [&](const auto& x, long long index) {
                state = Op::update(state, x, first, index);
            });
            state = reduce.all(state, merge);
        }
        return state;
    }

    template <typename Args>
    void finish(const Args& args, const Exchange& exchange, Linear k, int number,
                const Extras (&kept)[KEEP ? U : 1]) const {
        const State state = *reinterpret_cast<const State*>(memory + kTotal);
        // The zero changes from row to row for all that the compiler knows: what depends on it takes
        // no register from one row to the next, and kept extras stay packed.
        const unsigned zero = args.zero[3] * static_cast<unsigned>(k);
        const Compute n = static_cast<Compute>(args.n + zero);
        const Row row = row_of(args, k);
        const Part part{row, stage(number), start, chunks};
        const Values first = first_of(row, number);
        if constexpr (Op::kScalarOutputs) {
            if (threadIdx.x == 0 && exchange.rank == 0) {
                typename Row::template OutChunk<1> out;
                out.put(0, Op::finish(state, Values{}, {}, first, 0, n));
                row.store_scalars(out, 1);
            }
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
            // All threads compute, so that what they have in common is computed once.
            if (!part.any(u)) break;
            // Keeps ptxas from unpacking all extras before the first is used.
            if (KEEP && u % 2 == 0) __syncwarp();
            const int at = part.near(u);
            Extras read;
            if constexpr (!KEEP) row.load(read, part.column(at), V);
            const typename Row::template Chunk<V> x = part.chunk(at);
            typename Row::template OutChunk<V> out;
#pragma unroll
            for (int e = 0; e < V; ++e) {
                const auto extras = KEEP ? kept[KEEP ? u : 0].value(e, zero) : read.value(e);
                out.put(e, Op::finish(state, x.value(e), extras, first, part.column(at) + e, n));
            }
            row.store(out, part.column(at), part.has(u) ? V : 0);
        }
    }
};

}  // namespace ge2
