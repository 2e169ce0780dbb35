// Row operators over rows of any length, or slices of them: the row is read again to finish.
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

// Folds columns [begin, end) of a row; begin and, unless it is n, end are multiples of V.
template <typename Op, typename Row, int THREADS, int V, int U>
inline typename Op::State fold_slice(const Row& row, long long begin, long long end,
                                     const typename Op::Values& first) {
    typename Op::State running = Op::init();
    for (long long base = begin; base < end; base += static_cast<long long>(THREADS) * V * U) {
        typename Row::template Chunk<V> x[U];
        int valid[U];
        long long column[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            column[u] = base + static_cast<long long>(u * THREADS + static_cast<int>(threadIdx.x)) * V;
            const long long left = end - column[u];
            valid[u] = left >= V ? V : (left > 0 ? static_cast<int>(left) : 0);
            row.load(x[u], column[u], valid[u]);
        }
        fold_batch<Op, V, U>(running, x, valid, column, first, row.args.zero);
    }
    return running;
}

// Reads columns [begin, end) again and writes the row outputs.
template <typename Op, typename Row, int THREADS, int V, int U>
inline void finish_slice(const Row& row, long long begin, long long end,
                         const typename Op::State& state, const typename Op::Values& first,
                         long long n) {
    const auto length = static_cast<typename Op::Compute>(n);
    for (long long base = begin; base < end; base += static_cast<long long>(THREADS) * V * U) {
        typename Row::template Chunk<V> x[U];
        typename Row::template ExtraChunk<V> extras[U];
        int valid[U];
        long long column[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            column[u] = base + static_cast<long long>(u * THREADS + static_cast<int>(threadIdx.x)) * V;
            const long long left = end - column[u];
            valid[u] = left >= V ? V : (left > 0 ? static_cast<int>(left) : 0);
            row.load(x[u], column[u], valid[u]);
            row.load(extras[u], column[u], valid[u]);
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (valid[u] == 0) continue;
            typename Row::template OutChunk<V> out;
#pragma unroll
            for (int e = 0; e < V; ++e)
                out.put(e, Op::finish(state, x[u].value(e), extras[u].value(e), first,
                                      column[u] + e, length));
            row.store(out, column[u], valid[u]);
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

// One block per row.
template <typename Op, typename Row, typename Group, int THREADS, int V, int U, typename Linear,
          typename Args>
inline void row_loop(const Args& args, unsigned char* scratch) {
    const Row row(args, static_cast<Linear>(blockIdx.x));
    const typename Op::Values first = first_of_row<Row, Op>(row, args.n);
    typename Op::State state = fold_slice<Op, Row, THREADS, V, U>(row, 0, args.n, first);
    Group group(scratch);
    state = group.all(state, [](const auto& a, const auto& b) { return Op::merge(a, b); });
    if constexpr (Op::kScalarOutputs) {
        if (threadIdx.x == 0) finish_scalars<Op>(row, state, first, args.n);
    }
    if constexpr (Op::kRowOutputs)
        finish_slice<Op, Row, THREADS, V, U>(row, 0, args.n, state, first, args.n);
}

}  // namespace ge2
