// Rows longer than a block can hold, each element read once: a group of blocks walks over rows, each
// block with a slice of columns of its own, and a ring of shared-memory stages is filled ahead.
#pragma once

#include <ge2/prim/exchange/grid.cuh>
#include <ge2/ptx/address.cuh>
#include <ge2/ptx/fence.cuh>
#include <ge2/ptx/mbarrier.cuh>
#include <ge2/skeleton/row_fold.cuh>

namespace ge2 {

// A thread's chunks of one stage; read from shared memory anew in each pass.
template <typename Row, int THREADS, int V, int U>
struct StagedPart {
    const Row& row;
    const unsigned char* stage;
    long long start;  // column of the slice
    int chunks;       // of the slice

    int place(int u) const { return u * THREADS + static_cast<int>(threadIdx.x); }
    long long column(int u) const { return start + static_cast<long long>(place(u)) * V; }

    typename Row::template Chunk<V> chunk(int u) const {
        typename Row::template Chunk<V> x;
        row.template load_staged<V, THREADS * U>(x, stage, place(u));
        return x;
    }

    template <typename Visit>
    void each(unsigned, Visit visit) const {
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (place(u) >= chunks) continue;
            const typename Row::template Chunk<V> x = chunk(u);
#pragma unroll
            for (int e = 0; e < V; ++e) visit(x.value(e), column(u) + e);
        }
    }

    int count() const {
        int sum = 0;
#pragma unroll
        for (int u = 0; u < U; ++u) sum += place(u) < chunks ? V : 0;
        return sum;
    }
};

// The state of row k + 1 is published before row k's states are collected, so that no block waits for
// messages on their way. KEEP: extras are the same for all rows and stay in registers.
template <typename Op, typename Row, typename Group, int THREADS, int V, int U, int STAGES,
          bool KEEP, typename Linear>
struct RowPipe {
    using State = typename Op::State;
    using Values = typename Op::Values;
    using Compute = typename Op::Compute;
    using Part = StagedPart<Row, THREADS, V, U>;
    using Extras = typename Row::template ExtraChunk<V>;

    static constexpr int kStageBytes = Row::template staged_bytes<V>(THREADS * U);
    // Barriers, a broadcast state, a word and the group's scratch, then the stages.
    static constexpr int kBroadcast = 8 * STAGES;
    static constexpr int kWord = kBroadcast + 64;
    static constexpr int kGroup = 256;
    static constexpr int kStagesAt = (kGroup + Group::scratch_bytes(1) + 1023) / 1024 * 1024;
    static constexpr int bytes() { return kStagesAt + STAGES * kStageBytes; }

    template <typename Args>
    static void run(const Args& args, unsigned char* memory) {
        const int blocks = static_cast<int>(args.splits);
        const long long group = static_cast<long long>(blockIdx.x) / blocks;
        const int rank = static_cast<int>(blockIdx.x) - static_cast<int>(group) * blocks;
        const long long groups = static_cast<long long>(gridDim.x) / blocks;
        const long long all = args.n / V;
        // Pairs of chunks: what the copy engine moves is a multiple of 16 bytes.
        const long long each = ((all + blocks - 1) / blocks + 1) / 2 * 2;
        const long long begin = rank * each;
        const long long left = all - begin;
        const int chunks = static_cast<int>(left >= each ? each : (left > 0 ? left : 0));
        const long long start = begin * V;
        const long long mine = group < args.rows ? (args.rows - group + groups - 1) / groups : 0;
        const unsigned bars = ptx::smem_address(memory);
        auto row_of = [&](long long k) {
            return Row(args, static_cast<Linear>(group + k * groups));
        };
        auto refill = [&](long long k) {
            const unsigned bar = bars + 8 * static_cast<unsigned>(k % STAGES);
            ptx::mbarrier_arrive_expect_tx(bar, Row::template staged_bytes<V>(chunks));
            if (chunks > 0)
                row_of(k).template stage<V, THREADS * U>(
                    memory + kStagesAt + (k % STAGES) * kStageBytes, start, chunks, bar);
        };
        if (threadIdx.x == 0) {
#pragma unroll
            for (int s = 0; s < STAGES; ++s) ptx::mbarrier_init(bars + 8 * s, 1);
            ptx::fence_mbarrier_init();
        }
        __syncthreads();
        if (threadIdx.x == 0)
            for (long long k = 0; k < STAGES && k < mine; ++k) refill(k);

        Extras kept[U];
        if constexpr (KEEP) {
            const Row row = row_of(0);
#pragma unroll
            for (int u = 0; u < U; ++u) {
                const int place = u * THREADS + static_cast<int>(threadIdx.x);
                row.load(kept[u], start + static_cast<long long>(place) * V,
                         place < chunks ? V : 0);
            }
        }
        exchange::Grid<State> grid(args.semaphores, group, blocks, rank);
        Group reduce(memory + kGroup);
        auto merge = [](const auto& a, const auto& b) { return Op::merge(a, b); };
        const Compute n = static_cast<Compute>(args.n);
        auto first_of = [&](long long k) {
            Values first{};
            if constexpr (Op::kPivot) {
                typename Row::template Chunk<1> head;
                row_of(k < mine ? k : 0).load(head, 0, 1);
                first = head.value(0);
            }
            return first;
        };
        Values first = first_of(0), before{};
        for (long long k = 0; k <= mine; ++k) {
            Values next{};
            if (k < mine) {
                next = first_of(k + 1);
                ptx::mbarrier_wait(bars + 8 * static_cast<unsigned>(k % STAGES),
                                   static_cast<unsigned>(k / STAGES) & 1u);
                const Row row = row_of(k);
                const Part part{row, memory + kStagesAt + (k % STAGES) * kStageBytes, start,
                                chunks};
                State state = Op::init();
                fold_batch<Op>(state, part, first, args.zero);
                state = reduce.all(state, merge);
                if (threadIdx.x == 0) grid.publish(static_cast<unsigned>(k), state);
            }
            if (k > 0)
                finish(memory, row_of(k - 1), grid, k - 1, start, chunks, before, kept, n);
            if (k > 0 && k - 1 + STAGES < mine && threadIdx.x == 0) refill(k - 1 + STAGES);
            before = first;
            first = next;
        }
        grid.template leave<THREADS>(reinterpret_cast<unsigned*>(memory + kWord));
    }

    template <typename Grid>
    static void finish(unsigned char* memory, const Row& row, const Grid& grid, long long k,
                       long long start, int chunks, const Values& first,
                       const Extras (&kept)[U], Compute n) {
        State* shared = reinterpret_cast<State*>(memory + kBroadcast);
        if (threadIdx.x < 32) {
            const State total = grid.collect(
                static_cast<unsigned>(k), Op::init(),
                [](const auto& a, const auto& b) { return Op::merge(a, b); });
            if (threadIdx.x == 0) *shared = total;
        }
        __syncthreads();
        const State state = *shared;
        const Part part{row, memory + kStagesAt + (k % STAGES) * kStageBytes, start, chunks};
        if constexpr (Op::kScalarOutputs) {
            if (threadIdx.x == 0 && grid.rank == 0) {
                typename Row::template OutChunk<1> out;
                out.put(0, Op::finish(state, Values{}, {}, first, 0, n));
                row.store_scalars(out, 1);
            }
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (part.place(u) >= chunks) continue;
            Extras extras;
            if constexpr (KEEP) {
                extras = kept[u];
            } else {
                row.load(extras, part.column(u), V);
            }
            const typename Row::template Chunk<V> x = part.chunk(u);
            typename Row::template OutChunk<V> out;
#pragma unroll
            for (int e = 0; e < V; ++e)
                out.put(e, Op::finish(state, x.value(e), extras.value(e), first,
                                      part.column(u) + e, n));
            row.store(out, part.column(u), V);
        }
        __syncthreads();  // the stage has been read, the broadcast state as well
    }
};

}  // namespace ge2
