// Folds elements into a running state, U accesses of V elements at a time.
#pragma once

namespace ge2 {

// Calls visit(x, index) for each existing element of the batch; `zero` differs from pass to pass
// (see ge2/tile/opaque.cuh).
template <typename Op, int V, int U, typename Chunk, typename Visit>
inline void each_in_batch(const Chunk (&x)[U], const int (&valid)[U], const long long (&column)[U],
                          unsigned zero, Visit visit) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const Chunk chunk = x[u].again(zero);
#pragma unroll
        for (int e = 0; e < V; ++e)
            if (e < valid[u]) visit(chunk.value(e), column[u] + e);
    }
}

// Runs stages K.. over one thread's batch alone.
template <typename Op, int K, int V, int U, typename Chunk>
inline void batch_stages(typename Op::Seen& seen, const Chunk (&x)[U], const int (&valid)[U],
                         const long long (&column)[U], const typename Op::Values& first,
                         typename Op::Compute count, const unsigned (&zero)[4]) {
    if constexpr (K < Op::kStages) {
        using Stage = typename Op::template StageAt<K>;
        typename Stage::Partial partial = Stage::init();
        each_in_batch<Op, V, U>(x, valid, column, zero[K < 3 ? K : 3],
                                [&](const auto& value, long long index) {
                                    Stage::add(partial, seen, value, first, index);
                                });
        Stage::finish(seen, partial, count);
        batch_stages<Op, K + 1, V, U>(seen, x, valid, column, first, count, zero);
    }
}

// Merges a batch into running. With stages the batch gets a state of its own first, so that
// rescaling or a division happens once per batch and not once per element.
template <typename Op, int V, int U, typename Chunk>
inline void fold_batch(typename Op::State& running, const Chunk (&x)[U], const int (&valid)[U],
                       const long long (&column)[U], const typename Op::Values& first,
                       const unsigned (&zero)[4]) {
    if constexpr (Op::kStages > 0) {
        int count = 0;
#pragma unroll
        for (int u = 0; u < U; ++u) count += valid[u];
        if (count == 0) return;
        const auto n = static_cast<typename Op::Compute>(count);
        typename Op::Seen seen{};
        batch_stages<Op, 0, V, U>(seen, x, valid, column, first, n, zero);
        running = Op::merge(running, Op::collect(seen, n));
    } else {
        each_in_batch<Op, V, U>(x, valid, column, zero[0],
                                [&](const auto& value, long long index) {
                                    running = Op::update(running, value, first, index);
                                });
    }
}

}  // namespace ge2
