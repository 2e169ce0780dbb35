// Few long rows: several blocks per row, whose states meet in the workspace.
#pragma once

#include <ge2/skeleton/row_loop.cuh>
#include <ge2/tile/words.cuh>

namespace ge2 {

// Blocks of one row publish their states; the last to arrive merges all of them in order, so
// the result does not depend on timing. The workspace holds rows * splits states, then one final
// state per row for row_split_finish.
template <typename Op, typename Row, typename Group, int THREADS, int V, int U, typename Linear,
          typename Args>
inline void row_split(const Args& args, unsigned char* scratch) {
    const long long r = static_cast<long long>(blockIdx.x) / args.splits;
    const long long part = static_cast<long long>(blockIdx.x) - r * args.splits;
    const Row row(args, static_cast<Linear>(r));
    const typename Op::Values first = first_of_row<Row, Op>(row, args.n);
    auto merge = [](const auto& a, const auto& b) { return Op::merge(a, b); };
    Group group(scratch + 16);
    typename Op::State state =
        group.all(fold_walk<Op, Row, THREADS, V, U>(row, Walk{part, args.splits}, first), merge);

    using State = typename Op::State;
    State* states = static_cast<State*>(args.workspace) + r * args.splits;
    unsigned* ticket = reinterpret_cast<unsigned*>(scratch);
    if (threadIdx.x == 0) {
        states[part] = state;
        __threadfence();
        *ticket = atomicAdd(args.semaphores + r, 1u);
    }
    __syncthreads();
    if (*ticket != static_cast<unsigned>(args.splits) - 1u) return;
    __threadfence();
    State total = Op::init();
    for (long long i = threadIdx.x; i < args.splits; i += THREADS) {
        // Other blocks wrote these: read past the first-level cache.
        const volatile unsigned* from = reinterpret_cast<const volatile unsigned*>(states + i);
        Words<State> words{total};
#pragma unroll
        for (int w = 0; w < static_cast<int>(sizeof(State) / 4); ++w) words.word[w] = from[w];
        total = Op::merge(total, words.value);
    }
    total = group.all(total, merge);
    if (threadIdx.x != 0) return;
    args.semaphores[r] = 0;
    if constexpr (Op::kScalarOutputs) finish_scalars<Op>(row, total, first, args.n);
    if constexpr (Op::kRowOutputs)
        static_cast<State*>(args.workspace)[args.rows * args.splits + r] = total;
}

// The second launch: every block finishes its part with the row's state.
template <typename Op, typename Row, int THREADS, int V, int U, typename Linear, typename Args>
inline void row_split_finish(const Args& args) {
    const long long r = static_cast<long long>(blockIdx.x) / args.splits;
    const long long part = static_cast<long long>(blockIdx.x) - r * args.splits;
    const Row row(args, static_cast<Linear>(r));
    const typename Op::Values first = first_of_row<Row, Op>(row, args.n);
    const typename Op::State state =
        static_cast<const typename Op::State*>(args.workspace)[args.rows * args.splits + r];
    finish_walk<Op, Row, THREADS, V, U>(row, Walk{part, args.splits}, state, first);
}

}  // namespace ge2
