// The whole-row passes of an operator, each reduced over a group of threads before the next.
#pragma once

namespace ge2 {

// Runs stages K.. over the part, each reduced over the group before the next. n is the number of
// elements that the group holds.
template <typename Op, int K, typename Part, typename Group, typename Args>
inline void run_stages(typename Op::Seen& seen, const Part& part, Group& group,
                       const typename Op::Values& first, typename Op::Compute n,
                       const Args& args) {
    if constexpr (K < Op::kStages) {
        using Stage = typename Op::template StageAt<K>;
        typename Stage::Partial partial = Stage::init();
        part.each(args.zero[K < 3 ? K : 3], [&](const auto& x, long long index) {
            Stage::add(partial, seen, x, first, index, n);
        });
        partial = group.all_symmetric(
            partial, [](const auto& a, const auto& b) { return Stage::merge(a, b); });
        Stage::finish(seen, partial, n);
        run_stages<Op, K + 1>(seen, part, group, first, n, args);
    }
}

}  // namespace ge2
