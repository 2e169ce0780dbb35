// Streaming attention by wgmma: softmax(scale * Q K^T) V over blocks of keys. One warp group loads
// tiles by TMA, two or three others own 64 queries each; blocks are persistent and take one tile of
// queries after another.
#pragma once

#include <ge2/attention/wgmma_head.cuh>
#include <ge2/attention/wgmma_softmax.cuh>
#include <ge2/attention/wgmma_work.cuh>
#include <ge2/gemm/store_box.cuh>
#include <ge2/ptx/barrier.cuh>
#include <ge2/ptx/fence.cuh>
#include <ge2/ptx/griddep.cuh>
#include <ge2/ptx/ldst.cuh>
#include <ge2/ptx/mbarrier.cuh>
#include <ge2/ptx/opaque.cuh>
#include <ge2/ptx/setmaxnreg.cuh>
#include <ge2/shared.cuh>

namespace ge2 {

// Plan says what a kernel is:
//   Element            f16 or bf16
//   HEAD, BN, GROUPS   columns of a head (rounded up to a size that wgmma has), keys of a block,
//                      consumer groups
//   STAGES, Q_BUFFERS  of K and V; of Q: with several, the next tile's queries arrive early
//   PINGPONG           groups issue products in turns
//   FLAT               the next tile's first scores are multiplied with this tile's last values
//   DYNAMIC            blocks take tiles from a counter instead of every gridDim.x-th
//   HEAVY_FIRST, AHEAD, BEHIND    see AttentionTiles, KeyEdges
//   MASKED, LSE        a row may see no key; rows' log-sum-exps are written
//   Args               that of attention/arguments.j2, with map_q, map_k, map_v, map_y, section (of
//                      AttentionTiles) and tickets (two zeros, with DYNAMIC)
//   Score              (args, place): PLAIN, fold_of(args), and pair(sum, sum, query, key), which makes
//                      scores of two keys
//   Length             element type of args.kv_len, or void
template <typename Plan>
struct WgmmaAttention {
    using Args = typename Plan::Args;
    using Element = typename Plan::Element;
    using Score = typename Plan::Score;
    using Edges = KeyEdges<Plan::AHEAD, Plan::BEHIND>;

    static constexpr int HEAD = Plan::HEAD, BN = Plan::BN, GROUPS = Plan::GROUPS;
    static constexpr int BM = 64 * GROUPS;
    static constexpr int GROUP = 128;
    static constexpr int THREADS = GROUP * (1 + GROUPS);

    using TileQ = WgmmaHead<Element, HEAD, BM>;
    using TileKV = WgmmaHead<Element, HEAD, BN>;
    using Box = StoreBox<Element, TileQ::ROW_BYTES>;
    using Tiles = AttentionTiles<BM, Plan::HEAVY_FIRST>;
    using RingKV = RingPosition<Plan::STAGES>;
    using RingQ = RingPosition<Plan::Q_BUFFERS>;

    // What the groups have together is what the launch gives: setmaxnreg waits for more for ever.
    static constexpr int PRODUCER_REGISTERS = GROUPS == 2 ? 40 : 32;
    static constexpr int CONSUMER_REGISTERS = GROUPS == 2 ? 232 : 160;
    static_assert(GROUPS == 2 || GROUPS == 3, "registers are shared out for two or three groups");
    // Named barriers 1 and on: whose turn it is; then, for each group, that its warps have read their
    // queries; then all groups.
    static_assert(!Plan::FLAT || Plan::Q_BUFFERS > 1, "flat needs the next tile's queries early");

    struct Shared {
        unsigned q, k, v, q_full, q_empty, k_full, k_empty, v_full, v_empty;
        volatile unsigned* items;  // beside each buffer of Q: whose queries it holds

        Shared() {
            q = ptx::smem_address(shared_memory());
            k = q + Plan::Q_BUFFERS * TileQ::BYTES;
            v = k + Plan::STAGES * TileKV::BYTES;
            q_full = v + Plan::STAGES * TileKV::BYTES;
            q_empty = q_full + Plan::Q_BUFFERS * 8;
            k_full = q_empty + Plan::Q_BUFFERS * 8;
            k_empty = k_full + Plan::STAGES * 8;
            v_full = k_empty + Plan::STAGES * 8;
            v_empty = v_full + Plan::STAGES * 8;
            items = reinterpret_cast<volatile unsigned*>(shared_memory() + (v_empty - q) +
                                                         Plan::STAGES * 8);
        }

        void init_barriers() const {
            for (int i = 0; i < Plan::Q_BUFFERS; ++i) {
                ptx::mbarrier_init(q_full + i * 8, 1);
                ptx::mbarrier_init(q_empty + i * 8, GROUPS * 4 + 1);
            }
            for (int i = 0; i < Plan::STAGES; ++i) {
                ptx::mbarrier_init(k_full + i * 8, 1);
                ptx::mbarrier_init(k_empty + i * 8, GROUPS * 4);
                ptx::mbarrier_init(v_full + i * 8, 1);
                ptx::mbarrier_init(v_empty + i * 8, GROUPS * 4);
            }
            ptx::fence_mbarrier_init();
        }
    };

    static Place place_of(const Args& args, const AttentionTile& tile) {
        return {padded_sequence<typename Plan::Length>(args, tile.batch), tile.head, tile.query};
    }

    static KeyBlocks blocks_of(const Args& args, const Place& place) {
        const int last = lesser(place.query + BM, args.queries) - 1;
        return KeyBlocks::of<BN>(Edges{place.sequence.band}, place.query, last);
    }

    // The tile after `item`; from a counter, which the last block to see its end sets back.
    static unsigned next_item(const Args& args, unsigned item) {
        if constexpr (!Plan::DYNAMIC) return item + gridDim.x;
        return gridDim.x + atomicAdd(args.tickets, 1u);
    }

    static void put_back_tickets(const Args& args) {
        if constexpr (Plan::DYNAMIC) {
            if (ptx::atomic_add_acq_rel(args.tickets + 1, 1u) == gridDim.x - 1) {
                args.tickets[0] = 0;
                args.tickets[1] = 0;
            }
        }
    }

    static void load(const Args& args, const ptx::TensorMap* map, RingKV& ring, unsigned tiles,
                     unsigned full, unsigned empty, const AttentionTile& tile, int block) {
        const int head = tile.head / args.group;
        ptx::mbarrier_wait(empty + ring.stage * 8, ring.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(full + ring.stage * 8, TileKV::BYTES);
        TileKV::load(tiles + ring.stage * TileKV::BYTES, map, block * BN, head, tile.batch,
                     full + ring.stage * 8);
        ring.next();
    }

    // One thread: says which tile is next, and loads its queries and keys.
    static void produce_queries(const Args& args, const Shared& shared, const Tiles& tiles) {
        RingQ q;
        RingKV k;
        unsigned item = blockIdx.x;
        while (true) {
            const unsigned full = shared.q_full + q.stage * 8;
            ptx::mbarrier_wait(shared.q_empty + q.stage * 8, q.parity ^ 1);
            shared.items[q.stage] = item;
            if (item >= tiles.count) {
                ptx::mbarrier_arrive(full);
                break;
            }
            const AttentionTile tile = tiles[item];
            ptx::mbarrier_arrive_expect_tx(full, TileQ::BYTES);
            TileQ::load(shared.q + q.stage * TileQ::BYTES, &args.map_q, tile.query, tile.head,
                        tile.batch, full);
            q.next();
            item = next_item(args, item);  // early: its latency hides behind the keys
            const KeyBlocks blocks = blocks_of(args, place_of(args, tile));
#pragma unroll 1
            for (int i = 0; i < blocks.count; ++i) {
                load(args, &args.map_k, k, shared.k, shared.k_full, shared.k_empty, tile,
                     blocks.last - i);
            }
        }
        put_back_tickets(args);
    }

    // Another thread, so that values that wait for their place hold no keys up. Those of the first tile
    // do not wait for its queries either. But the thread then sees them arrive: a wait for the phase
    // behind one that is still open returns at once.
    static void produce_values(const Args& args, const Shared& shared, const Tiles& tiles) {
        RingQ q;
        RingKV v;
        unsigned item = blockIdx.x;
        while (item < tiles.count) {
            const AttentionTile tile = tiles[item];
            const KeyBlocks blocks = blocks_of(args, place_of(args, tile));
#pragma unroll 1
            for (int i = 0; i < blocks.count; ++i) {
                load(args, &args.map_v, v, shared.v, shared.v_full, shared.v_empty, tile,
                     blocks.last - i);
            }
            ptx::mbarrier_wait(shared.q_full + q.stage * 8, q.parity);
            ptx::mbarrier_arrive(shared.q_empty + q.stage * 8);
            q.next();
            ptx::mbarrier_wait(shared.q_full + q.stage * 8, q.parity);
            item = shared.items[q.stage];
        }
    }

    // A consumer group: 64 queries of each tile.
    struct Consumer {
        const Args& args;
        const Shared& shared;
        const Tiles& tiles;
        const int group, warp, lane;
        const float fold;  // once, not for each block: its product is of doubles
        RingQ q;
        RingKV k, v;
        Place place;  // of the tile whose scores are weighed
        KeyBlocks blocks;
        RowWeights rows;
        bool stored;  // a buffer of Q holds results on their way out, and is not handed back yet
        int stored_in;
        float scores[BN / 2], out[HEAD / 2];
        unsigned weights[BN / 4];

        Consumer(const Args& args, const Shared& shared, const Tiles& tiles, int group)
            : args(args),
              shared(shared),
              tiles(tiles),
              group(group),
              warp(threadIdx.x / 32 % 4),
              lane(threadIdx.x % 32),
              fold(Score::fold_of(args)),
              stored(false),
              stored_in(0) {}

        // Waits for the queries of the next tile; false behind the last.
        bool next_tile() {
            ptx::mbarrier_wait(shared.q_full + q.stage * 8, q.parity);
            const unsigned item = __shfl_sync(0xffffffffu, shared.items[q.stage], 0);
            if (item >= tiles.count) return false;
            place = place_of(args, tiles[item]);
            blocks = blocks_of(args, place);
            return true;
        }

        // Issues the product of the tile's queries with the next block of keys.
        void multiply_keys(int buffer) {
            ptx::mbarrier_wait(shared.k_full + k.stage * 8, k.parity);
            const unsigned long long a =
                TileQ::by_columns(shared.q + buffer * TileQ::BYTES, group * 64);
            const unsigned long long b = TileKV::by_columns(shared.k + k.stage * TileKV::BYTES);
            ptx::wgmma_fence();
#pragma unroll
            for (int i = 0; i < HEAD / 16; ++i) {
                ge2::wgmma<BN, 0, 0>(Element{}, scores, a + TileQ::columns_offset(i),
                                     b + TileKV::columns_offset(i), i > 0);
            }
            ptx::wgmma_commit();
        }

        // Issues the product of weights with the next block of values, to be added up.
        void multiply_values(bool first) {
            ptx::mbarrier_wait(shared.v_full + v.stage * 8, v.parity);
            const unsigned long long b = TileKV::by_rows(shared.v + v.stage * TileKV::BYTES);
            ptx::wgmma_fence();
#pragma unroll
            for (int i = 0; i < BN / 16; ++i) {
                ge2::wgmma_registers<HEAD, 1>(Element{}, out, weights + 4 * i,
                                              b + i * TileKV::STEP_ROWS, !first || i > 0);
            }
            ptx::wgmma_commit();
        }

        // After a wait: hands stages back, and keeps arithmetic on registers behind it.
        void take_scores() {
            ptx::opaque(scores);
            if (lane == 0) ptx::mbarrier_arrive(shared.k_empty + k.stage * 8);
            k.next();
        }

        // Waits for the products in flight. ptxas moves that wait up within its basic block, ahead of
        // the weighing that is to hide the products. The loop of another wait ends the block before it:
        // that for the queries at work, which are there long since.
        void await_products() {
            ptx::mbarrier_wait(shared.q_full + q.stage * 8, q.parity);
            ptx::wgmma_wait<0>();
        }

        void take_sums() {
            ptx::opaque(out);
            ptx::opaque(weights);
            if (lane == 0) ptx::mbarrier_arrive(shared.v_empty + v.stage * 8);
            v.next();
        }

        // Scores of keys from `key` on, minus infinity where a query does not see a key.
        void finish_scores(const Score& score, int key) {
            const int group_query = place.query + group * 64;
            const int query = group_query + warp * 16 + lane / 4;
            if constexpr (!Score::PLAIN) {
#pragma unroll
                for (int i = 0; i < BN / 2; i += 2) {
                    score.pair(scores[i], scores[i + 1], query + i / 2 % 2 * 8,
                               key + i / 4 * 8 + lane % 4 * 2);
                }
            }
            const Edges edges{place.sequence.band};
            if (!edges.cut(key, BN, group_query, group_query + 63)) return;
            const int first = key + lane % 4 * 2;
            const int end[2] = {edges.end(query) - first, edges.end(query + 8) - first};
            const int begin[2] = {edges.begin(query) - first, edges.begin(query + 8) - first};
#pragma unroll
            for (int i = 0; i < BN / 2; ++i) {
                const int at = i / 4 * 8 + i % 2, r = i / 2 % 2;
                if (at >= end[r] || (Plan::BEHIND && at < begin[r])) scores[i] = -inf_f32();
            }
        }

        // Values behind a sample's last key are cleared: NaN times a weight of 0 would be NaN.
        void clear_values() {
            if constexpr (!Absent<typename Plan::Length>::value) {
                const int length = place.sequence.band.length, inside = length - blocks.last * BN;
                if (inside >= BN || length >= args.keys) return;
                constexpr int CHUNKS = TileKV::ROW_BYTES / 16;
                ptx::mbarrier_wait(shared.v_full + v.stage * 8, v.parity);
                const unsigned values = shared.v + v.stage * TileKV::BYTES;
                const int from = (inside > 0 ? inside : 0) * CHUNKS;
                for (int i = from + threadIdx.x - GROUP; i < BN * CHUNKS; i += GROUPS * GROUP) {
                    for (int box = 0; box < TileKV::BOXES; ++box) {
                        ptx::store_shared_16(values + box * TileKV::BOX_BYTES + i * 16,
                                             uint4{0, 0, 0, 0});
                    }
                }
                ptx::fence_proxy_async_shared();
                ptx::named_barrier_sync(1 + 2 * GROUPS, GROUPS * GROUP);
            }
        }

        template <bool FIRST>
        void weigh_block(int block, float (&shrink)[2]) {
            const Score score(args, place);
            finish_scores(score, block * BN);
            weigh<FIRST, Plan::MASKED>(scores, fold, rows, shrink);
        }

        void pack() { pack_weights<Element>(weights, scores); }

        // The first block of a tile: only scores.
        void begin() {
            float shrink[2];
            multiply_keys(q.stage);
            ptx::wgmma_wait<0>();
            take_scores();
            hand_back_queries();
            weigh_block<true>(blocks.last, shrink);
            pack();
        }

        // One further block: its scores are weighed while the values before it are multiplied.
        void step(int block, bool first) {
            float shrink[2];
            if constexpr (Plan::PINGPONG) ptx::named_barrier_sync(1 + group, 2 * GROUP);
            multiply_keys(q.stage);
            multiply_values(first);
            if constexpr (Plan::PINGPONG) {
                ptx::named_barrier_arrive(1 + (group + 1) % GROUPS, 2 * GROUP);
            }
            ptx::wgmma_wait<1>();
            take_scores();
            weigh_block<false>(block, shrink);
            if constexpr (Plan::FLAT) hand_back_queries();
            await_products();
            take_sums();
#pragma unroll
            for (int i = 0; i < HEAD / 2; ++i) out[i] *= shrink[i / 2 % 2];
            pack();
        }

        // Writes 64 rows: over the queries that they came from, and from there out.
        void store(const Place& at, const RowWeights& found, int buffer) {
            const int query = at.query + group * 64 + warp * 16;
            float inverse[2];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const float sum = quad_sum(found.sum[r]);
                inverse[r] = sum == 0.0f ? 0.0f : ptx::rcp_approx(sum);
                if constexpr (Plan::LSE) {
                    write_lse(at, query + lane / 4 + r * 8, found.most[r], sum);
                }
            }
            ptx::named_barrier_sync(1 + GROUPS + group, GROUP);  // all warps have read the queries
            const unsigned target = shared.q + buffer * TileQ::BYTES +
                                    (group * 64 + warp * 16) * TileQ::ROW_BYTES;
#pragma unroll
            for (int box = 0; box < TileQ::BOXES; ++box) {
                Box::fill(target + box * TileQ::BOX_BYTES, lane, [&](int eight, int lower) {
                    const int i = box * TileQ::WIDTH / 2 + eight * 4 + lower * 2;
                    if (i >= HEAD / 2) return Pair{0.0f, 0.0f};
                    return Pair{out[i] * inverse[lower], out[i + 1] * inverse[lower]};
                });
            }
            ptx::fence_proxy_async_shared();
            __syncwarp();
            if (lane == 0) {
#pragma unroll
                for (int box = 0; box < TileQ::BOXES; ++box) {
                    ptx::tma_store_4d(&args.map_y, target + box * TileQ::BOX_BYTES,
                                      box * TileQ::WIDTH, query, at.head, at.sequence.index);
                }
                ptx::bulk_commit();
            }
            stored = true;
            stored_in = buffer;
            if constexpr (Plan::Q_BUFFERS == 1) hand_back_queries();
        }

        void write_lse(const Place& at, int query, float most, float sum) {
            if (lane % 4 != 0 || query >= args.queries) return;
            const float exponent = most * fold + ptx::lg2_approx(sum);
            at.queries_of<float>(args.lse, false)[query * args.lse.row] =
                sum == 0.0f ? -inf_f32() : exponent * 0.693147180559945f;
        }

        // Once the results in a buffer have been read, the next queries may come there.
        void hand_back_queries() {
            if (!stored) return;
            stored = false;
            if (lane == 0) {
                ptx::bulk_wait_read<0>();
                ptx::mbarrier_arrive(shared.q_empty + stored_in * 8);
            }
            __syncwarp();
        }

        // Ends a tile and begins the next; false behind the last.
        bool turn(bool first) {
            const Place done = place;
            if constexpr (!Plan::FLAT) {
                multiply_values(first);
                ptx::wgmma_wait<0>();
                take_sums();
                store(done, rows, q.stage);
                q.next();
                if (!next_tile()) return false;
                begin();
                return true;
            }
            const int buffer = q.stage;
            const RowWeights found = rows;
            if constexpr (Plan::Q_BUFFERS == 2) hand_back_queries();  // the next tile's come there
            q.next();
            if (!next_tile()) {
                multiply_values(first);
                ptx::wgmma_wait<0>();
                take_sums();
                store(done, found, buffer);
                return false;
            }
            float shrink[2];
            multiply_keys(q.stage);
            multiply_values(first);
            ptx::wgmma_wait<1>();
            take_scores();
            weigh_block<true>(blocks.last, shrink);
            if constexpr (Plan::Q_BUFFERS > 2) hand_back_queries();
            await_products();
            take_sums();
            pack();
            store(done, found, buffer);
            return true;
        }

        void run() {
            if (Plan::PINGPONG && group == GROUPS - 1) {
                ptx::named_barrier_arrive(1, 2 * GROUP);  // the first turn is group 0's
            }
            if (next_tile()) {
                begin();
                do {
                    clear_values();
#pragma unroll 1
                    for (int i = 1; i < blocks.count; ++i) {
                        step(blocks.last - i, i == 1);
                    }
                } while (turn(blocks.count == 1));
            }
            if (Plan::PINGPONG && group == 0) ptx::named_barrier_sync(1, 2 * GROUP);
            if (lane == 0) ptx::bulk_wait_read<0>();  // they are complete when the grid is
        }
    };

    static void run(const Args& args) {
        ptx::griddep_launch_dependents();
        const Shared shared;
        const Tiles tiles(args);
        // Through a shuffle, so that the compiler knows that all lanes of a warp agree.
        const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
        if (threadIdx.x == 0) {
            shared.init_barriers();
            ptx::tma_prefetch(&args.map_q);
            ptx::tma_prefetch(&args.map_k);
            ptx::tma_prefetch(&args.map_v);
            ptx::tma_prefetch(&args.map_y);
        }
        __syncthreads();
        ptx::griddep_wait();
        if (warp < 4) {
            ptx::setmaxnreg_dec<PRODUCER_REGISTERS>();
            if (threadIdx.x == 0) produce_queries(args, shared, tiles);
            if (threadIdx.x == 32) produce_values(args, shared, tiles);
        } else {
            ptx::setmaxnreg_inc<CONSUMER_REGISTERS>();
            Consumer consumer(args, shared, tiles, warp / 4 - 1);
            consumer.run();
        }
    }
};

}  // namespace ge2
