// Folds elements into a running state, U accesses of V elements at a time.
#pragma once

namespace ge2 {

// U accesses of V neighbouring elements, STEP apart: lanes [skip, valid) exist.
template <typename Chunk, int V, int U, int STEP>
struct Batch {
    Chunk x[U];
    int skip[U];
    int valid[U];
    long long start;

    long long column(int u) const { return start + u * STEP; }

    // Calls visit(x, index) for each existing element; `zero` differs from pass to pass (see
    // ge2/tile/opaque.cuh).
    template <typename Visit>
    void each(unsigned zero, Visit visit) const {
#pragma unroll
        for (int u = 0; u < U; ++u) {
#pragma unroll
            for (int e = 0; e < V; ++e)
                if (e >= skip[u] && e < valid[u]) visit(x[u].value(e, zero), column(u) + e);
        }
    }

    int count() const {
        int sum = 0;
#pragma unroll
        for (int u = 0; u < U; ++u) sum += valid[u] > skip[u] ? valid[u] - skip[u] : 0;
        return sum;
    }
};

// Runs stages K.. over one thread's batch alone.
template <typename Op, int K, typename Batch>
inline void batch_stages(typename Op::Seen& seen, const Batch& batch,
                         const typename Op::Values& first, typename Op::Compute count,
                         const unsigned (&zero)[4]) {
    if constexpr (K < Op::kStages) {
        using Stage = typename Op::template StageAt<K>;
        typename Stage::Partial partial = Stage::init();
        batch.each(zero[K < 3 ? K : 3], [&](const auto& value, long long index) {
            Stage::add(partial, seen, value, first, index, count);
        });
        Stage::finish(seen, partial, count);
        batch_stages<Op, K + 1>(seen, batch, first, count, zero);
    }
}

// Merges a batch into running. With stages the batch gets a state of its own first, so that
// rescaling or a division happens once per batch and not once per element.
template <typename Op, typename Batch>
inline void fold_batch(typename Op::State& running, const Batch& batch,
                       const typename Op::Values& first, const unsigned (&zero)[4]) {
    if constexpr (Op::kStages > 0) {
        const int count = batch.count();
        if (count == 0) return;
        const auto n = static_cast<typename Op::Compute>(count);
        typename Op::Seen seen{};
        batch_stages<Op, 0>(seen, batch, first, n, zero);
        running = Op::merge(running, Op::collect(seen, n));
    } else {
        batch.each(zero[0], [&](const auto& value, long long index) {
            running = Op::update(running, value, first, index);
        });
    }
}

}  // namespace ge2
