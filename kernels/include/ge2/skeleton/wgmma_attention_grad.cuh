// Gradients of attention by wgmma: two warp groups keep the sums of 64 rows each, keys or queries, in
// registers, while a third lets the rows of the other kind stream past by TMA. Weights are computed
// again from the statistics of the forward pass, and each sum is made in one block, in one order.
#pragma once

#include <ge2/attention/gradient.cuh>
#include <ge2/attention/wgmma_head.cuh>
#include <ge2/attention/wgmma_softmax.cuh>
#include <ge2/gemm/store_box.cuh>
#include <ge2/ptx/barrier.cuh>
#include <ge2/ptx/fence.cuh>
#include <ge2/ptx/mbarrier.cuh>
#include <ge2/ptx/opaque.cuh>
#include <ge2/ptx/setmaxnreg.cuh>
#include <ge2/shared.cuh>

namespace ge2 {

// Tensor maps of a role.
struct GradientMaps {
    const ptx::TensorMap *own_first, *own_second, *streamed_first, *streamed_second, *result_first,
        *result_second;
};

// With queries q, their gradients' d, keys k and values v: own rows are those of k and v, streamed
// ones of q and d (BY_KEYS), or the other way round. "First" is q or k, "second" d or v.
// Plan says what a kernel is:
//   Element           f16 or bf16
//   HEAD              columns of a head, rounded up to a size that wgmma has
//   STREAMED, STAGES  rows that stream past at a time, and how many times as many are in memory
//   Args              that of attention/arguments.j2, with statistics: of each head statistics_rows, a
//                     multiple of STREAMED where queries stream
//   maps(args)        GradientMaps; result_second is that of v's gradient
//   Score             (args, place): fold; a score is its product
template <typename Plan, bool BY_KEYS>
struct WgmmaGradient {
    using Args = typename Plan::Args;
    using Element = typename Plan::Element;
    using Known = Statistics<float>;

    static constexpr int HEAD = Plan::HEAD, STREAMED = Plan::STREAMED, STAGES = Plan::STAGES;
    static constexpr int GROUPS = 2, GROUP = 128, OWN = 64 * GROUPS;
    static constexpr int THREADS = GROUP * (1 + GROUPS);
    // What the groups have together is what the launch gives: setmaxnreg waits for more for ever.
    static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
    // Whether the gradient of v can be summed up while p, g and what is packed of them are all there.
    static constexpr bool EARLY = BY_KEYS && HEAD + STREAMED * 3 / 2 <= 232;

    using Own = WgmmaHead<Element, HEAD, OWN>;
    using Tile = WgmmaHead<Element, HEAD, STREAMED>;
    using Box = StoreBox<Element, Own::ROW_BYTES>;
    using Ring = RingPosition<STAGES>;
    static constexpr unsigned STATISTICS = BY_KEYS ? STREAMED * sizeof(Known) : 0;

    struct Shared {
        unsigned own_first, own_second, first, second, statistics, own_full, full, empty;
        const Known* known;

        Shared() {
            own_first = ptx::smem_address(shared_memory());
            own_second = own_first + Own::BYTES;
            first = own_second + Own::BYTES;
            second = first + STAGES * Tile::BYTES;
            statistics = second + STAGES * Tile::BYTES;
            full = statistics + STAGES * STATISTICS;
            empty = full + STAGES * 8;
            own_full = empty + STAGES * 8;
            known = reinterpret_cast<const Known*>(shared_memory() + (statistics - own_first));
        }

        void init_barriers() const {
            ptx::mbarrier_init(own_full, 1);
            for (int i = 0; i < STAGES; ++i) {
                ptx::mbarrier_init(full + i * 8, 1);
                ptx::mbarrier_init(empty + i * 8, GROUPS * 4);
            }
            ptx::fence_mbarrier_init();
        }
    };

    // A block's own rows, and what streams past them: rows from begin on, of each of some heads.
    struct Work {
        Sequence sequence;
        int head, first;   // of the own rows
        int begin, end, streamed_head, heads;

        Work(const Args& args, unsigned block) {
            const int rows = BY_KEYS ? args.keys : args.queries;
            const int all_heads = BY_KEYS ? args.heads / args.group : args.heads;
            const unsigned tiles = (static_cast<unsigned>(rows) + OWN - 1) / OWN;
            const unsigned rest = block / tiles;
            // Under a causal mask the first keys and the last queries take longest: they begin.
            const int tile = static_cast<int>(block % tiles);
            first = (BY_KEYS ? tile : static_cast<int>(tiles) - 1 - tile) * OWN;
            sequence = padded_sequence<void>(args, static_cast<int>(rest / all_heads));
            head = static_cast<int>(rest % all_heads);
            streamed_head = BY_KEYS ? head * args.group : head / args.group;
            heads = BY_KEYS ? args.group : 1;
            begin = seen(first).begin / STREAMED * STREAMED;
            end = seen(lesser(first + OWN, rows) - 1).end;
        }

        // The streamed rows that an own row meets; both ends grow with the row.
        KeyRange seen(int row) const {
            if constexpr (!BY_KEYS) return sequence.band.of(row);
            return queries_of_keys(sequence.band, sequence.queries, row, 1);
        }
    };

    static const Known* statistics_of(const Args& args, const Work& work, int head) {
        const long long row = static_cast<long long>(work.sequence.index) * args.heads + head;
        return static_cast<const Known*>(args.statistics) + row * args.statistics_rows;
    }

    // One thread: loads the own rows, then tile after tile.
    static void produce(const Args& args, const Shared& shared, const Work& work) {
        const int batch = work.sequence.index;
        const GradientMaps maps = Plan::maps(args);
        ptx::mbarrier_arrive_expect_tx(shared.own_full, 2 * Own::BYTES);
        Own::load(shared.own_first, maps.own_first, work.first, work.head, batch, shared.own_full);
        Own::load(shared.own_second, maps.own_second, work.first, work.head, batch,
                  shared.own_full);
        Ring ring;
        for (int head = work.streamed_head; head < work.streamed_head + work.heads; ++head) {
#pragma unroll 1
            for (int row = work.begin; row < work.end; row += STREAMED) {
                const unsigned full = shared.full + ring.stage * 8;
                ptx::mbarrier_wait(shared.empty + ring.stage * 8, ring.parity ^ 1);
                ptx::mbarrier_arrive_expect_tx(full, 2 * Tile::BYTES + STATISTICS);
                Tile::load(shared.first + ring.stage * Tile::BYTES, maps.streamed_first, row, head,
                           batch, full);
                if constexpr (BY_KEYS) {
                    ptx::bulk_load(shared.statistics + ring.stage * STATISTICS,
                                   statistics_of(args, work, head) + row, STATISTICS, full);
                }
                Tile::load(shared.second + ring.stage * Tile::BYTES, maps.streamed_second, row,
                           head, batch, full);
                ring.next();
            }
        }
    }

    using Scores = float[STREAMED / 2];  // of a thread

    // A consumer group: 64 of the own rows.
    struct Consumer {
        const Args& args;
        const Shared& shared;
        const Work& work;
        const int group, warp, lane;
        const float fold;
        Ring ring;
        int held;      // stage that sums are still made from, -1 = none
        Known own[2];  // of this thread's rows, where they are queries
        float first[HEAD / 2];                 // gradient of k or q
        float second[BY_KEYS ? HEAD / 2 : 1];  // gradient of v
        unsigned weights[BY_KEYS ? STREAMED / 4 : 1], slopes[STREAMED / 4];

        Consumer(const Args& args, const Shared& shared, const Work& work, int group)
            : args(args),
              shared(shared),
              work(work),
              group(group),
              warp(threadIdx.x / 32 % 4),
              lane(threadIdx.x % 32),
              fold(typename Plan::Score(args, Place{work.sequence, work.head, 0}).fold),
              held(-1) {
#pragma unroll
            for (int i = 0; i < HEAD / 2; ++i) first[i] = 0.0f;
            if constexpr (!BY_KEYS) {
                load_statistics();
            } else {
#pragma unroll
                for (int i = 0; i < HEAD / 2; ++i) second[i] = 0.0f;
            }
        }

        // The first own row of the group, and of this thread.
        int group_row() const { return work.first + group * 64; }
        int thread_row() const { return group_row() + warp * 16 + lane / 4; }

        void load_statistics() {
            const Known* from = statistics_of(args, work, work.head);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const int query = thread_row() + r * 8;
                own[r] = query < args.queries ? from[query] : no_statistics<float>();
            }
        }

        // Issues products of the own rows with the streamed ones.
        void multiply(Scores& to, unsigned own_tile, unsigned tile) const {
            const unsigned long long a = Own::by_columns(own_tile, group * 64);
            const unsigned long long b = Tile::by_columns(tile);
            ptx::wgmma_fence();
#pragma unroll
            for (int i = 0; i < HEAD / 16; ++i) {
                ge2::wgmma<STREAMED, 0, 0>(Element{}, to, a + Own::columns_offset(i),
                                           b + Tile::columns_offset(i), i > 0);
            }
            ptx::wgmma_commit();
        }

        // Issues sums += x * tile.
        void add_products(float (&sums)[HEAD / 2], const unsigned (&x)[STREAMED / 4],
                          unsigned tile) const {
            const unsigned long long b = Tile::by_rows(tile);
            ptx::wgmma_fence();
#pragma unroll
            for (int i = 0; i < STREAMED / 16; ++i) {
                ge2::wgmma_registers<HEAD, 1>(Element{}, sums, x + 4 * i, b + i * Tile::STEP_ROWS,
                                              1);
            }
        }

        // Statistics of the queries of accumulators i and i + 1, whose row is r.
        Vec<Known, 2> known_of(int i) const {
            if constexpr (!BY_KEYS) return {own[i / 2 % 2], own[i / 2 % 2]};
            return *reinterpret_cast<const Vec<Known, 2>*>(
                shared.known + ring.stage * STREAMED + i / 4 * 8 + lane % 4 * 2);
        }

        // Scores become weights; those of rows that do not meet become 0.
        void weigh(Scores& p, int streamed) const {
#pragma unroll
            for (int i = 0; i < STREAMED / 2; i += 2) {
                const Vec<Known, 2> known = known_of(i);
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    p[i + e] = ptx::ex2_approx_ftz(__fmaf_rn(p[i + e], fold, -known[e][0]));
                }
            }
            const int begin = work.seen(group_row() + 63).begin, end = work.seen(group_row()).end;
            if (begin <= streamed && streamed + STREAMED <= end) return;
            const int column = streamed + lane % 4 * 2;
            const KeyRange rows[2] = {work.seen(thread_row()), work.seen(thread_row() + 8)};
            const int from[2] = {rows[0].begin - column, rows[1].begin - column};
            const int to[2] = {rows[0].end - column, rows[1].end - column};
#pragma unroll
            for (int i = 0; i < STREAMED / 2; ++i) {
                const int at = i / 4 * 8 + i % 2, r = i / 2 % 2;
                if (at < from[r] || at >= to[r]) p[i] = 0.0f;
            }
        }

        // Slopes of the weights become slopes of the scores.
        void slope(Scores& g, const Scores& p) const {
#pragma unroll
            for (int i = 0; i < STREAMED / 2; i += 2) {
                const Vec<Known, 2> known = known_of(i);
#pragma unroll
                for (int e = 0; e < 2; ++e) g[i + e] = p[i + e] * (g[i + e] - known[e][1]);
            }
        }

        // After a wait for all that was issued before this tile: its sums stay behind the wait, and
        // its stage goes back.
        void take_sums() {
            ptx::opaque(first);
            ptx::opaque(slopes);
            if constexpr (BY_KEYS) {
                ptx::opaque(second);
                ptx::opaque(weights);
                ptx::fence_proxy_async_shared();  // statistics were read, not only tiles by wgmma
                __syncwarp();
            }
            if (held >= 0 && lane == 0) ptx::mbarrier_arrive(shared.empty + held * 8);
            held = ring.stage;
        }

        // The sums run on under this tile's scores, whose weights are found under the slopes of the
        // weights. Those are issued only when the sums are there: no registers are left before.
        void step(int streamed) {
            const unsigned at_first = shared.first + ring.stage * Tile::BYTES;
            const unsigned at_second = shared.second + ring.stage * Tile::BYTES;
            Scores p, g;  // weights, and slopes of scores; here, so that no old values are kept
            ptx::mbarrier_wait(shared.full + ring.stage * 8, ring.parity);
            multiply(p, shared.own_first, at_first);
            ptx::wgmma_wait<1>();
            take_sums();
            multiply(g, shared.own_second, at_second);
            ptx::wgmma_wait<1>();
            ptx::opaque(p);
            weigh(p, streamed);
            if constexpr (EARLY) {
                pack_weights<Element>(weights, p);
                add_products(second, weights, at_second);
                ptx::wgmma_commit();
                ptx::wgmma_wait<1>();
            } else {
                ptx::wgmma_wait<0>();
            }
            ptx::opaque(g);
            slope(g, p);
            if constexpr (BY_KEYS && !EARLY) {
                pack_weights<Element>(weights, p);
                add_products(second, weights, at_second);
            }
            pack_weights<Element>(slopes, g);
            add_products(first, slopes, at_first);
            ptx::wgmma_commit();
            ring.next();
        }

        // Writes 64 rows times a factor: over the own rows of this group, and from there out.
        void store(const float (&sums)[HEAD / 2], float factor, unsigned tile,
                   const ptx::TensorMap* map) const {
            const unsigned target = tile + (group * 64 + warp * 16) * Own::ROW_BYTES;
#pragma unroll
            for (int box = 0; box < Own::BOXES; ++box) {
                Box::fill(target + box * Own::BOX_BYTES, lane, [&](int eight, int lower) {
                    const int i = box * Own::WIDTH / 2 + eight * 4 + lower * 2;
                    if (i >= HEAD / 2) return Pair{0.0f, 0.0f};
                    return Pair{sums[i] * factor, sums[i + 1] * factor};
                });
            }
            ptx::fence_proxy_async_shared();
            __syncwarp();
            if (lane != 0) return;
#pragma unroll
            for (int box = 0; box < Own::BOXES; ++box) {
                ptx::tma_store_4d(map, target + box * Own::BOX_BYTES, box * Own::WIDTH,
                                  group_row() + warp * 16, work.head, work.sequence.index);
            }
            ptx::bulk_commit();
        }

        void run() {
            ptx::mbarrier_wait(shared.own_full, 0);
            for (int head = 0; head < work.heads; ++head) {
#pragma unroll 1
                for (int row = work.begin; row < work.end; row += STREAMED) step(row);
            }
            ptx::wgmma_wait<0>();
            take_sums();
            const GradientMaps maps = Plan::maps(args);
            ptx::named_barrier_sync(1 + group, GROUP);  // all warps have read the own rows
            store(first, static_cast<float>(args.scale), shared.own_first, maps.result_first);
            if constexpr (BY_KEYS) store(second, 1.0f, shared.own_second, maps.result_second);
            if (lane == 0) ptx::bulk_wait_read<0>();  // they are complete when the grid is
        }
    };

    // block: number among those of this role.
    static void run(const Args& args, unsigned block) {
        const Shared shared;
        const Work work(args, block);
        // Through a shuffle, so that the compiler knows that all lanes of a warp agree.
        const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
        if (threadIdx.x == 0) {
            const GradientMaps maps = Plan::maps(args);
            shared.init_barriers();
            ptx::tma_prefetch(maps.own_first);
            ptx::tma_prefetch(maps.own_second);
            ptx::tma_prefetch(maps.streamed_first);
            ptx::tma_prefetch(maps.streamed_second);
        }
        __syncthreads();
        if (warp < 4) {
            ptx::setmaxnreg_dec<PRODUCER_REGISTERS>();
            if (threadIdx.x == 0) produce(args, shared, work);
        } else {
            ptx::setmaxnreg_inc<CONSUMER_REGISTERS>();
            Consumer consumer(args, shared, work, warp / 4 - 1);
            consumer.run();
        }
    }
};

}  // namespace ge2
