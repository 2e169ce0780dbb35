// Row operators over rows of any length, or parts of them: the row is read again to finish.
#pragma once

#include <ge2/skeleton/row_fold.cuh>
#include <ge2/tile/vector.cuh>

namespace ge2 {

template <typename Row, typename Op>
inline typename Op::Values first_of_row(const Row& row, long long n) {
    typename Op::Values first{};
    if constexpr (Op::kPivot) {
        typename Row::template Chunk<1> head;
        row.load(head, 0, n > 0 ? 1 : 0);
        first = head.value(0);
    }
    return first;
}

// This thread's batch of columns from base on; base is on a 16-byte boundary.
template <typename Row, int THREADS, int V, int U>
inline void load_batch(Batch<typename Row::template Chunk<V>, V, U, THREADS * V>& batch,
                       const Row& row, long long base, long long n) {
    batch.start = base + static_cast<int>(threadIdx.x) * V;
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const long long column = batch.column(u);
        const long long left = n - column;
        batch.valid[u] = left >= V ? V : (left > 0 ? static_cast<int>(left) : 0);
        batch.skip[u] = Row::kIsShifted && column < 0 ? static_cast<int>(-column) : 0;
        row.load(batch.x[u], column, batch.valid[u], batch.skip[u]);
    }
}

// Which parts of a row a block walks over: batches part, part + parts, ... The blocks of a row thus
// read neighbouring memory at the same time.
struct Walk {
    long long part;
    long long parts;
};

// Folds a walk over a row.
template <typename Op, typename Row, int THREADS, int V, int U>
inline typename Op::State fold_walk(const Row& row, const Walk& walk,
                                    const typename Op::Values& first) {
    constexpr long long kStep = static_cast<long long>(THREADS) * V * U;
    const long long n = row.args.n;
    typename Op::State running = Op::init();
    for (long long base = walk.part * kStep - row.template shift<V>(); base < n;
         base += walk.parts * kStep) {
        Batch<typename Row::template Chunk<V>, V, U, THREADS * V> batch;
        load_batch<Row, THREADS>(batch, row, base, n);
        fold_batch<Op>(running, batch, first, row.args.zero);
    }
    return running;
}

// Reads a walk over a row again, the last batch first because it is still in the cache, and writes
// the row outputs.
template <typename Op, typename Row, int THREADS, int V, int U>
inline void finish_walk(const Row& row, const Walk& walk, const typename Op::State& state,
                        const typename Op::Values& first) {
    constexpr long long kStep = static_cast<long long>(THREADS) * V * U;
    const long long n = row.args.n;
    const auto length = static_cast<typename Op::Compute>(n);
    const long long shift = row.template shift<V>();
    const long long last = (n + shift - 1) / kStep;
    const long long rounds = last < walk.part ? 0 : (last - walk.part) / walk.parts + 1;
    for (long long round = rounds - 1; round >= 0; --round) {
        const long long base = (walk.part + round * walk.parts) * kStep - shift;
        Batch<typename Row::template Chunk<V>, V, U, THREADS * V> batch;
        typename Row::template ExtraChunk<V> extras[U];
        load_batch<Row, THREADS>(batch, row, base, n);
#pragma unroll
        for (int u = 0; u < U; ++u)
            row.load(extras[u], batch.column(u), batch.valid[u], batch.skip[u]);
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (batch.valid[u] == 0) continue;
            typename Row::template OutChunk<V> out;
#pragma unroll
            for (int e = 0; e < V; ++e)
                out.put(e, Op::finish(state, batch.x[u].value(e), extras[u].value(e), first,
                                      batch.column(u) + e, length));
            row.store(out, batch.column(u), batch.valid[u], batch.skip[u]);
        }
    }
}

template <typename Op, typename Row>
inline void finish_scalars(const Row& row, const typename Op::State& state,
                           const typename Op::Values& first, long long n) {
    typename Row::template OutChunk<1> out;
    out.put(0, Op::finish(state, typename Op::Values{}, {}, first, 0,
                          static_cast<typename Op::Compute>(n)));
    row.store_scalars(out, 1);
}

// Stages K.. of an operator that has no merge: one pass over the row for each.
template <typename Op, int K, typename Row, int THREADS, int V, int U, typename Group>
inline void row_passes(typename Op::Seen& seen, const Row& row, Group& group,
                       const typename Op::Values& first, long long n) {
    if constexpr (K < Op::kStages) {
        using Stage = typename Op::template StageAt<K>;
        const auto length = static_cast<typename Op::Compute>(n);
        typename Stage::Partial partial = Stage::init();
        for (long long base = -row.template shift<V>(); base < n;
             base += static_cast<long long>(THREADS) * V * U) {
            Batch<typename Row::template Chunk<V>, V, U, THREADS * V> batch;
            load_batch<Row, THREADS>(batch, row, base, n);
            batch.each(row.args.zero[0], [&](const auto& value, long long index) {
                Stage::add(partial, seen, value, first, index, length);
            });
        }
        partial = group.all_symmetric(
            partial, [](const auto& a, const auto& b) { return Stage::merge(a, b); });
        Stage::finish(seen, partial, length);
        row_passes<Op, K + 1, Row, THREADS, V, U>(seen, row, group, first, n);
    }
}

// One block per row.
template <typename Op, typename Row, typename Group, int THREADS, int V, int U, typename Linear,
          typename Args>
inline void row_loop(const Args& args, unsigned char* scratch) {
    const Row row(args, static_cast<Linear>(blockIdx.x));
    const typename Op::Values first = first_of_row<Row, Op>(row, args.n);
    Group group(scratch);
    typename Op::State state = Op::init();
    if constexpr (Op::kStreamable) {
        state = group.all(fold_walk<Op, Row, THREADS, V, U>(row, Walk{0, 1}, first),
                          [](const auto& a, const auto& b) { return Op::merge(a, b); });
    } else {
        typename Op::Seen seen{};
        row_passes<Op, 0, Row, THREADS, V, U>(seen, row, group, first, args.n);
        state = Op::collect(seen, static_cast<typename Op::Compute>(args.n));
    }
    if constexpr (Op::kScalarOutputs) {
        if (threadIdx.x == 0) finish_scalars<Op>(row, state, first, args.n);
    }
    if constexpr (Op::kRowOutputs)
        finish_walk<Op, Row, THREADS, V, U>(row, Walk{0, 1}, state, first);
}

}  // namespace ge2
