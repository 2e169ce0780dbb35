// Row operators whose rows are neighbours in memory and whose elements are far apart (a reduction
// over a leading axis): threads lie along the rows, so that accesses stay contiguous.
#pragma once

#include <ge2/skeleton/row_fold.cuh>
#include <ge2/skeleton/row_split.cuh>
#include <ge2/tile/vector.cuh>

namespace ge2 {

// The columns of one of `splits` slices; all but the last are multiples of `grain`.
struct Slice {
    long long begin;
    long long end;
};

inline Slice slice_of(long long n, long long splits, long long index, long long grain) {
    const long long grains = (n + grain - 1) / grain;
    const long long each = (grains + splits - 1) / splits * grain;
    const long long begin = index * each;
    const long long end = begin + each;
    return {begin < n ? begin : n, end < n ? end : n};
}

// A block of ACROSS x DOWN threads; each holds the states of V neighbouring rows and folds every
// DOWN-th element, U at a time. `inner` is the extent of the innermost lead axis; blocks do not
// cross it. Splits share a set of rows and meet in the workspace, as in row_split.
template <typename Op, typename Row, int ACROSS, int DOWN, int V, int U, typename Linear>
struct RowColumn {
    using State = typename Op::State;
    using Values = typename Op::Values;
    using Compute = typename Op::Compute;
    template <int N>
    using Chunk = typename Row::template Chunk<N>;

    // One lane of a V-wide chunk, for folding lane by lane.
    struct Lane {
        Values x;
        Values value(int, unsigned) const { return x; }
    };

    template <typename Args>
    static void fold(const Row& row, const Args& args, Slice slice, int valid, int down,
                     const Values (&first)[V], State (&state)[V]) {
        for (long long base = slice.begin + down; base < slice.end; base += DOWN * U) {
            Chunk<V> x[U];
            Batch<Lane, 1, U, DOWN> lane;
            lane.start = base;
#pragma unroll
            for (int u = 0; u < U; ++u) {
                lane.skip[u] = 0;
                lane.valid[u] = lane.column(u) < slice.end ? 1 : 0;
                row.load(x[u], lane.column(u), lane.valid[u] ? valid : 0);
            }
#pragma unroll
            for (int e = 0; e < V; ++e) {
#pragma unroll
                for (int u = 0; u < U; ++u) lane.x[u].x = x[u].value(e);
                fold_batch<Op>(state[e], lane, first[e], args.zero);
            }
        }
    }

    // Merges the DOWN states of each row in order; all threads get the result.
    static void meet(State (&state)[V], unsigned char* scratch, int across, int down) {
        State* slots = reinterpret_cast<State*>(scratch);
        __syncthreads();
#pragma unroll
        for (int e = 0; e < V; ++e) slots[(down * V + e) * ACROSS + across] = state[e];
        __syncthreads();
#pragma unroll 1
        for (int half = DOWN / 2; half > 0; half /= 2) {
            if (down < half) {
#pragma unroll
                for (int e = 0; e < V; ++e) {
                    State& mine = slots[(down * V + e) * ACROSS + across];
                    mine = Op::merge(mine, slots[((down + half) * V + e) * ACROSS + across]);
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int e = 0; e < V; ++e) state[e] = slots[e * ACROSS + across];
    }

    // Publishes this split's states; returns whether this block is the last and holds the totals.
    template <typename Args>
    static bool across_splits(const Args& args, State (&state)[V], unsigned char* scratch,
                              long long group, long long split, int across, int down) {
        constexpr long long kPerGroup = static_cast<long long>(ACROSS) * V;
        State* mine = static_cast<State*>(args.workspace) +
                      (group * args.splits + split) * kPerGroup + across * V;
        unsigned* ticket = reinterpret_cast<unsigned*>(scratch);
        if (down == 0) {
#pragma unroll
            for (int e = 0; e < V; ++e) mine[e] = state[e];
            __threadfence();
        }
        __syncthreads();
        if (threadIdx.x == 0) *ticket = atomicAdd(args.semaphores + group, 1u);
        __syncthreads();
        const bool last = *ticket == static_cast<unsigned>(args.splits) - 1u;
        if (!last) return false;
        __threadfence();
        if (threadIdx.x == 0) args.semaphores[group] = 0;
        // All threads read: each row's states in a fixed order, DOWN apart, then across threads.
#pragma unroll
        for (int e = 0; e < V; ++e) state[e] = Op::init();
#pragma unroll 2
        for (long long s = down; s < args.splits; s += DOWN) {
            const State* other = static_cast<const State*>(args.workspace) +
                                 (group * args.splits + s) * kPerGroup + across * V;
            Words<State> words[V];
#pragma unroll
            for (int e = 0; e < V; ++e) {
                const volatile unsigned* from =
                    reinterpret_cast<const volatile unsigned*>(other + e);
                words[e].value = state[e];
#pragma unroll
                for (int w = 0; w < static_cast<int>(sizeof(State) / 4); ++w)
                    words[e].word[w] = from[w];
            }
#pragma unroll
            for (int e = 0; e < V; ++e) state[e] = Op::merge(state[e], words[e].value);
        }
        meet(state, scratch + 16, across, down);
        return true;
    }

    template <typename Args>
    static void run(const Args& args, unsigned char* scratch, long long inner) {
        const int across = static_cast<int>(threadIdx.x) % ACROSS;
        const int down = static_cast<int>(threadIdx.x) / ACROSS;
        const long long tiles = (inner + ACROSS * V - 1) / (ACROSS * V);
        const long long split = static_cast<long long>(blockIdx.x) % args.splits;
        const long long group = static_cast<long long>(blockIdx.x) / args.splits;
        const long long outer = group / tiles;
        const long long place = (group - outer * tiles) * (ACROSS * V) + across * V;
        const long long left = inner - place;
        const int valid = left >= V ? V : (left > 0 ? static_cast<int>(left) : 0);
        const Row row(args, static_cast<Linear>(outer * inner + (valid > 0 ? place : 0)));
        const Slice slice = slice_of(args.n, args.splits, split, DOWN);

        Values first[V]{};
        if constexpr (Op::kPivot) {
            Chunk<V> head;
            row.load(head, 0, args.n > 0 ? valid : 0);
#pragma unroll
            for (int e = 0; e < V; ++e) first[e] = head.value(e);
        }
        State state[V];
#pragma unroll
        for (int e = 0; e < V; ++e) state[e] = Op::init();
        fold(row, args, slice, valid, down, first, state);
        meet(state, scratch + 16, across, down);
        if (args.splits > 1 &&
            !across_splits(args, state, scratch, group, split, across, down))
            return;
        const Compute n = static_cast<Compute>(args.n);
        if constexpr (Op::kScalarOutputs) {
            if (down == 0 && valid > 0) {
                typename Row::template OutChunk<V> out;
#pragma unroll
                for (int e = 0; e < V; ++e)
                    out.put(e, Op::finish(state[e], Values{}, {}, first[e], 0, n));
                row.store_scalars(out, valid);
            }
        }
        if constexpr (Op::kRowOutputs) {
            if (valid == 0) return;
            for (long long column = down; column < args.n; column += DOWN) {
                Chunk<V> x;
                typename Row::template ExtraChunk<V> extras;
                row.load(x, column, valid);
                row.load(extras, column, valid);
                typename Row::template OutChunk<V> out;
#pragma unroll
                for (int e = 0; e < V; ++e)
                    out.put(e, Op::finish(state[e], x.value(e), extras.value(e), first[e],
                                          column, n));
                row.store(out, column, valid);
            }
        }
    }
};

}  // namespace ge2
