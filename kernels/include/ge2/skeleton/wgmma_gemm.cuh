// Matrix products by wgmma: one warp group loads tiles by TMA into a ring of stages, one or two
// others multiply them; blocks are persistent and take one output tile after another.
#pragma once

#include <ge2/gemm/operand.cuh>
#include <ge2/gemm/operand_planes.cuh>
#include <ge2/gemm/store_box.cuh>
#include <ge2/gemm/wgmma_tile.cuh>
#include <ge2/ptx/barrier.cuh>
#include <ge2/ptx/fence.cuh>
#include <ge2/ptx/griddep.cuh>
#include <ge2/ptx/mbarrier.cuh>
#include <ge2/ptx/opaque.cuh>
#include <ge2/ptx/setmaxnreg.cuh>
#include <ge2/shared.cuh>

namespace ge2 {

// Cooperative: both consumer groups share each tile. Ping-pong: each has its own tiles, and one's
// epilogue runs under the other's products. Single: one consumer group.
enum class WgmmaSchedule { COOPERATIVE, PINGPONG, SINGLE };

// k runs over the elements of windows, from one of which to the next B is shifted.
struct WindowPlan {};

// What a stage holds: of a WindowPlan a tile of A for each of TAPS elements, and HALO rows of B
// behind those of the tile, so that from each element to the next B begins tap_rows(args) later.
// Enumerators, since constants would leave symbols and so change every cubin.
template <typename Plan, bool = __is_base_of(WindowPlan, Plan)>
struct StageTaps {
    enum { TAPS = 1, HALO = 0 };
};
template <typename Plan>
struct StageTaps<Plan, true> {
    enum { TAPS = Plan::TAPS, HALO = Plan::HALO };
};

// An output tile, or a part of its sums.
struct WgmmaWork {
    int row, column;  // of its first element
    int batch;
    int first, steps;  // of k
    int part;          // 0 collects what the others leave in the workspace
    unsigned slot;     // of a split tile
};

// Plan says what a kernel is:
//   Operand, Output    element types (float operands are multiplied as tf32)
//   SCHEDULE, BM, BN, STAGES, STORES (store buffers of a warp)
//   K_MAJOR_A, K_MAJOR_B, OUTPUTS, PDL
//   PLANES             1; or 3: operands are sums of planes, of whose products the six largest are
//                      added
//   PROMOTE            after how many steps of k sums leave the tensor cores; 0: after the last
//   DIRECT             outputs are written without tensor maps, where Args has y; one output
//   SPLITS             whether the tiles behind the last whole wave may be split along k
//   Args               map_a, map_b, map_y[OUTPUTS], m, n, k, batches, a_varies, b_varies, whole,
//                      splits (tiles before the split ones, and the parts of each of those), and
//                      with SPLITS parts, arrived (sums of parts; a zero for each group of a part)
//   Epilogue           (args, batch): at<OUTPUT>(acc0, acc1, row, column) -> Pair
//                      prefetch(args, work, rows, columns, lane)
//   with PLANES == 3, Args also has the f32 operands a and b, and flags_a and flags_b: of which 64 by
//                      64 elements have an infinity or NaN (row: flags of 64 rows, batch[2]: of a
//                      matrix)
// A WindowPlan has TAPS, HALO and tap_rows(args), see StageTaps, loads a stage itself, load<TileA,
// TileB>(args, work, step, stage, bar), and writes a box, write<Box>(args, box, work, lane); DIRECT.
template <typename Plan>
struct WgmmaGemm {
    using Args = typename Plan::Args;
    using Operand = typename Plan::Operand;
    using Box = StoreBox<typename Plan::Output>;
    using TileA = WgmmaTile<Operand, Plan::BM, Plan::K_MAJOR_A>;
    using TileB = WgmmaTile<Operand, Plan::BN, Plan::K_MAJOR_B>;
    using Ring = RingPosition<Plan::STAGES>;

    static constexpr bool PINGPONG = Plan::SCHEDULE == WgmmaSchedule::PINGPONG;
    static constexpr int CONSUMERS = Plan::SCHEDULE == WgmmaSchedule::SINGLE ? 1 : 2;
    static constexpr int BM = Plan::BM, BN = Plan::BN, BK = TileA::K;
    static constexpr int GROUP = 128;
    static constexpr int GROUP_ROWS = PINGPONG ? BM : BM / CONSUMERS;
    static constexpr int STEPS_M = GROUP_ROWS / 64;
    static constexpr int SUMS = STEPS_M * BN / 2 * (Plan::PROMOTE == 0 ? 1 : 2);
    static constexpr int PRODUCTS = Plan::PLANES == 1 ? 1 : 6;
    using Taps = StageTaps<Plan>;
    static constexpr unsigned STAGE_BYTES =
        Taps::TAPS * TileA::BYTES + TileB::BYTES + Taps::HALO * 128;
    static constexpr int EMPTY_ARRIVALS = 4 * (PINGPONG ? 1 : CONSUMERS);
    // More than 168 registers a thread must come from the producer, which needs few.
    static constexpr bool MOVES_REGISTERS = CONSUMERS == 2;
    static constexpr int CONSUMER_REGISTERS = SUMS > 128 ? 240 : 232;
    static constexpr int PRODUCER_REGISTERS = SUMS > 128 ? 24 : 40;

    using Sum = typename WgmmaSum<Operand>::type;
    using Sums = Sum[STEPS_M][BN / 2];

    struct Shared {
        unsigned stages, stores, full, empty;
        unsigned tap_rows = 0;  // of B in a stage, from one tap to the next

        Shared() {
            stages = ptx::smem_address(shared_memory());
            stores = stages + Plan::STAGES * STAGE_BYTES;
            full = stores + CONSUMERS * 4 * Plan::STORES * Box::BYTES;
            empty = full + Plan::STAGES * 8;
        }
    };

    // The tiles of all matrices, one after another; the last ones in parts, so that they keep all
    // blocks busy: first part 0 of each, then part 1 of each, and so on.
    struct Tiles {
        unsigned rows, columns, whole, splits, rest, count;
        int steps;

        explicit Tiles(const Args& args)
            : rows((static_cast<unsigned>(args.m) + BM - 1) / BM),
              columns((static_cast<unsigned>(args.n) + BN - 1) / BN),
              whole(rows * columns * static_cast<unsigned>(args.batches)),
              splits(1),
              rest(0),
              count(whole),
              steps(static_cast<int>((static_cast<unsigned>(args.k) + BK - 1) / BK)) {
            if constexpr (Plan::SPLITS) {
                rest = whole - static_cast<unsigned>(args.whole);
                whole = static_cast<unsigned>(args.whole);
                splits = static_cast<unsigned>(args.splits);
                count = whole + rest * splits;
            }
        }

        // Steps of k that an item takes.
        int length(unsigned item) const {
            if (!Plan::SPLITS || item < whole) return steps;
            const int part = static_cast<int>((item - whole) / rest);
            return begin(part + 1) - begin(part);
        }

        WgmmaWork operator[](unsigned item) const {
            unsigned tile = item, slot = 0;
            int part = 0, from = 0, length = steps;
            if (Plan::SPLITS && item >= whole) {
                part = static_cast<int>((item - whole) / rest);
                slot = item - whole - part * rest;
                tile = whole + slot;
                from = begin(part);
                length = begin(part + 1) - from;
            }
            const unsigned batch = tile < rows * columns ? 0 : tile / (rows * columns);
            const TilePosition at = tile_position(tile - batch * rows * columns, rows, columns);
            return {at.row * BM, at.column * BN, static_cast<int>(batch), from, length, part, slot};
        }

    private:
        int begin(int part) const { return steps * part / static_cast<int>(splits); }
    };

    // Small products first: of planes 2 0, 0 2, 1 1, 1 0, 0 1, 0 0 (two bits each).
    static int plane_a(int product) { return 0x052 >> product * 2 & 3; }
    static int plane_b(int product) { return 0x118 >> product * 2 & 3; }

    static void load(const Args& args, const Shared& shared, Ring& ring, const WgmmaWork& work,
                     int step, int a, int b) {
        const unsigned stage = shared.stages + ring.stage * STAGE_BYTES;
        const unsigned full = shared.full + ring.stage * 8;
        ptx::mbarrier_wait(shared.empty + ring.stage * 8, ring.parity ^ 1);
        if constexpr (__is_base_of(WindowPlan, Plan)) {
            Plan::template load<TileA, TileB>(args, work, step, stage, full);
        } else {
            ptx::mbarrier_arrive_expect_tx(full, STAGE_BYTES);
            TileA::load(stage, &args.map_a, work.row, step * BK, a, full);
            TileB::load(stage + TileA::BYTES, &args.map_b, work.column, step * BK, b, full);
        }
        ring.next();
    }

    static void produce(const Args& args, const Shared& shared, const Tiles& tiles) {
        Ring ring;
        for (unsigned item = blockIdx.x; item < tiles.count; item += gridDim.x) {
            const WgmmaWork work = tiles[item];
            int a = 0, b = 0;
            if constexpr (!__is_base_of(WindowPlan, Plan)) {
                a = work.batch * static_cast<int>(args.a_varies) * Plan::PLANES;
                b = work.batch * static_cast<int>(args.b_varies) * Plan::PLANES;
            }
            if constexpr (Plan::PLANES == 1) {
                for (int step = 0; step < work.steps; ++step) {
                    load(args, shared, ring, work, work.first + step, a, b);
                }
            } else {
                for (int first = 0; first < work.steps; first += Plan::PROMOTE) {
                    const int last = lesser(first + Plan::PROMOTE, work.steps);
                    for (int product = 0; product < 6; ++product) {
                        for (int step = first; step < last; ++step) {
                            load(args, shared, ring, work, step, a + plane_a(product),
                                 b + plane_b(product));
                        }
                    }
                }
            }
        }
    }

    // Adds the products of `steps` stages. Each stage stays in flight while the next is issued; it
    // is handed back only after that. The last one is left in flight.
    static void multiply(Sums& acc, Ring& ring, const Shared& shared, int steps, int row,
                         int lane) {
        int previous = -1;
        for (int step = 0; step < steps; ++step) {
            ptx::mbarrier_wait(shared.full + ring.stage * 8, ring.parity);
            const unsigned stage = shared.stages + ring.stage * STAGE_BYTES;
            const unsigned long long a = TileA::descriptor(stage) + row / 64 * TileA::STEP_I64;
            const unsigned long long b = TileB::descriptor(stage + Taps::TAPS * TileA::BYTES);
            ptx::wgmma_fence();
#pragma unroll
            for (int tap = 0; tap < Taps::TAPS; ++tap) {
                const unsigned long long tap_a = a + tap * (TileA::BYTES / 16);
                const unsigned long long tap_b = b + tap * shared.tap_rows * (128 / 16);
#pragma unroll
                for (int k = 0; k < 4; ++k) {
#pragma unroll
                    for (int i = 0; i < STEPS_M; ++i) {
                        ge2::wgmma<BN, TileA::TRANSPOSED, TileB::TRANSPOSED>(
                            Operand{}, acc[i], tap_a + i * TileA::STEP_I64 + k * TileA::STEP_K,
                            tap_b + k * TileB::STEP_K, step > 0 || tap > 0 || k > 0);
                    }
                }
            }
            ptx::wgmma_commit();
            ptx::wgmma_wait<1>();
            if (previous >= 0 && lane == 0) ptx::mbarrier_arrive(shared.empty + previous * 8);
            previous = ring.stage;
            ring.next();
        }
    }

    // Waits for the products in flight and hands their stage back.
    static void finish(const Ring& ring, const Shared& shared, int lane) {
        ptx::wgmma_wait<0>();
        const int last = ring.stage == 0 ? Plan::STAGES - 1 : ring.stage - 1;
        if (lane == 0) ptx::mbarrier_arrive(shared.empty + last * 8);
    }

    // Tensor cores round sums towards zero; a few steps' sums at a time are added up in registers.
    static void multiply_promoted(Sums& sums, Ring& ring, const Shared& shared, int steps, int row,
                                  int lane) {
        for (int i = 0; i < STEPS_M * BN / 2; ++i) sums[i / (BN / 2)][i % (BN / 2)] = 0.f;
        for (int first = 0; first < steps; first += Plan::PROMOTE) {
            Sums acc;
            const int count = lesser(first + Plan::PROMOTE, steps) - first;
            multiply(acc, ring, shared, PRODUCTS * count, row, lane);
            finish(ring, shared, lane);
#pragma unroll
            for (int i = 0; i < STEPS_M; ++i) {
#pragma unroll
                for (int j = 0; j < BN / 2; ++j) sums[i][j] += acc[i][j];
            }
        }
    }

    // Leaves a part's sums in the workspace, or adds those of the other parts to part 0's, always in
    // the same order; returns whether the tile is done then. All blocks run at the same time.
    static bool meet(Sums& sums, const Args& args, const Tiles& tiles, const WgmmaWork& work,
                     int consumer) {
        constexpr int QUADS = STEPS_M * BN / 8;
        constexpr int GROUPS = PINGPONG ? 1 : CONSUMERS;
        const int group = PINGPONG ? 0 : consumer;
        const int thread = threadIdx.x % GROUP;
        const int barrier = 3 + consumer;
        const auto place = [&](int part) {
            return ((part - 1) * tiles.rest + work.slot) * GROUPS + group;
        };
        const auto quads = [&](int part) {
            return static_cast<float4*>(args.parts) +
                   static_cast<long long>(place(part)) * QUADS * GROUP + thread;
        };
        if (work.part > 0) {
            float4* to = quads(work.part);
#pragma unroll
            for (int i = 0; i < QUADS; ++i) {
                const float* s = sums[i / (BN / 8)] + i % (BN / 8) * 4;
                to[i * GROUP] = make_float4(s[0], s[1], s[2], s[3]);
            }
            __threadfence();
            ptx::named_barrier_sync(barrier, GROUP);
            if (thread == 0) ptx::store_release(args.arrived + place(work.part), 1u);
            return false;
        }
        for (int part = 1; part < static_cast<int>(tiles.splits); ++part) {
            unsigned* arrived = args.arrived + place(part);
            if (thread == 0) {
                while (ptx::load_acquire(arrived) == 0u) {
                }
                ptx::store_release(arrived, 0u);
            }
            ptx::named_barrier_sync(barrier, GROUP);
            const float4* from = quads(part);
#pragma unroll
            for (int i = 0; i < QUADS; ++i) {
                const float4 v = __ldcg(from + i * GROUP);
                float* s = sums[i / (BN / 8)] + i % (BN / 8) * 4;
                s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
            }
        }
        return true;
    }

    // Planes leave out what is not finite. Where a warp's operands have such elements, each sum is
    // computed again in plain f32, and taken where that is not finite either.
    static void mend(Sums& sums, const Args& args, const WgmmaWork& work, int lane) {
        const int depth = static_cast<int>(args.flags_a.row);
        const int matrix_a = work.batch * static_cast<int>(args.a_varies);
        const int matrix_b = work.batch * static_cast<int>(args.b_varies);
        const unsigned* flags_a =
            static_cast<const unsigned*>(args.flags_a.pointer) + matrix_a * args.flags_a.batch[2];
        const unsigned* flags_b = static_cast<const unsigned*>(args.flags_b.pointer) +
                                  matrix_b * args.flags_b.batch[2] + work.column / 64 * depth;
        const int columns = lesser(BN, static_cast<int>(args.n) - work.column);
        const bool in_b = any_flag(flags_b, (columns + 63) / 64 * depth, lane);
        const float* a = static_cast<const float*>(args.a.pointer) + work.batch * args.a.batch[2];
        const float* b = static_cast<const float*>(args.b.pointer) + work.batch * args.b.batch[2];
#pragma unroll
        for (int i = 0; i < STEPS_M; ++i) {
            const int row0 = work.row + i * 64;
            if (row0 >= args.m) continue;
            if (!any_flag(flags_a + row0 / 64 * depth, depth, lane) && !in_b) continue;
#pragma unroll 1
            for (int j = 0; j < BN / 2; ++j) {
                const int row = row0 + lane / 4 + j / 2 % 2 * 8;
                const int column = work.column + j / 4 * 8 + lane % 4 * 2 + j % 2;
                if (row >= args.m || column >= args.n) continue;
                const float sum = plain_dot(a + row * args.a.row, b + column * args.b.row,
                                            args.a.column, args.b.column, args.k);
                if (is_finite(sum)) continue;
#pragma unroll
                for (int s = 0; s < BN / 2; ++s) sums[i][s] = s == j ? sum : sums[i][s];
            }
        }
    }

    // Writes a box out element by element, for rows that are not whole 16 bytes.
    static void write_box(const Args& args, unsigned box, const WgmmaWork& at, int lane) {
        using Output = typename Plan::Output;
        const GemmOperand& y = args.y;
        Output* matrix = static_cast<Output*>(const_cast<void*>(y.pointer)) +
                         static_cast<long long>(at.batch) * y.batch[2];
        const Output* staged = reinterpret_cast<const Output*>(
            shared_memory() + (box - ptx::smem_address(shared_memory())));
#pragma unroll 2
        for (int row = 0; row < 16; ++row) {
            if (at.row + row >= args.m) break;
#pragma unroll
            for (int i = 0; i < Box::COLUMNS / 32; ++i) {
                const int column = lane + i * 32;
                const int chunk = (column * static_cast<int>(sizeof(Output)) / 16) ^ (row & 7);
                const int inside = column % (16 / sizeof(Output));
                const Output value =
                    staged[row * Box::COLUMNS + chunk * (16 / sizeof(Output)) + inside];
                if (at.column + column < args.n) {
                    matrix[(at.row + row) * y.row + (at.column + column) * y.column] = value;
                }
            }
        }
    }

    // Writes a warp's 16 rows of one step: a box at a time through a store buffer, which the copy
    // engine empties while the next is filled. The engine also clips what lies outside of Y.
    template <int OUTPUT>
    static void store_box(const Sum* sums, const typename Plan::Epilogue& epilogue,
                          const Args& args, unsigned buffers, int& buffer, const WgmmaWork& at,
                          int lane) {
        const unsigned target = buffers + buffer * Box::BYTES;
        buffer = buffer + 1 == Plan::STORES ? 0 : buffer + 1;
        if constexpr (!Plan::DIRECT) {
            if (lane == 0) ptx::bulk_wait_read<Plan::STORES - 1>();
            __syncwarp();
        }
        const int last_row = static_cast<int>(args.m) - 1;
        const int row = ptx::opaque(at.row) + lane / 4;
        const int column = ptx::opaque(at.column) + lane % 4 * 2;
        Box::fill(target, lane, [&](int group, int lower) {
            const Sum* d = sums + group * 4 + lower * 2;
            return epilogue.template at<OUTPUT>(d[0], d[1], lesser(row + lower * 8, last_row),
                                                column + group * 8);
        });
        if constexpr (Plan::DIRECT) {
            __syncwarp();
            if constexpr (__is_base_of(WindowPlan, Plan)) {
                Plan::template write<Box>(args, target, at, lane);
            } else {
                write_box(args, target, at, lane);
            }
            __syncwarp();
        } else {
            ptx::fence_proxy_async_shared();
            __syncwarp();
            if (lane == 0) {
                ptx::tma_store_3d(&args.map_y[OUTPUT], target, at.column, at.row, at.batch);
                ptx::bulk_commit();
            }
        }
    }

    static void store(const Sum (&sums)[BN / 2], const typename Plan::Epilogue& epilogue,
                      const Args& args, unsigned buffers, int& buffer, const WgmmaWork& at,
                      int lane) {
#pragma unroll
        for (int box = 0; box < BN / Box::COLUMNS; ++box) {
            WgmmaWork where = at;
            where.column += box * Box::COLUMNS;
            const Sum* d = sums + box * Box::COLUMNS / 2;
            store_box<0>(d, epilogue, args, buffers, buffer, where, lane);
            if constexpr (Plan::OUTPUTS > 1) {
                store_box<1>(d, epilogue, args, buffers, buffer, where, lane);
            }
        }
    }

    static void consume(const Args& args, const Shared& shared, const Tiles& tiles, int consumer) {
        const int lane = threadIdx.x % 32;
        const int warp = threadIdx.x / 32 % 4;
        const int group_row = PINGPONG ? 0 : consumer * GROUP_ROWS;
        const unsigned buffers =
            shared.stores + (consumer * 4 + warp) * Plan::STORES * Box::BYTES;
        const unsigned stride = PINGPONG ? 2 * gridDim.x : gridDim.x;
        const unsigned first = blockIdx.x + (PINGPONG ? consumer * gridDim.x : 0);
        // Barriers 1 and 2 let the groups issue products in turns; the first turn is group 0's.
        const int own_turn = 1 + consumer;
        const int other_turn = 2 - consumer;
        Ring ring;
        if (PINGPONG && consumer == 1) {
            ring.skip(tiles.length(blockIdx.x));
            ptx::named_barrier_arrive(other_turn, 2 * GROUP);
        }
        int buffer = 0;
        Sums sums;
        for (unsigned item = first; item < tiles.count; item += stride) {
            // Before the products, so that nothing but the epilogue itself comes after them.
            WgmmaWork work = tiles[item];
            work.row += group_row + warp * 16;
            Plan::Epilogue::prefetch(args, work, STEPS_M, BN, lane);
            const int skipped = PINGPONG ? tiles.length(item + gridDim.x) : 0;
            if constexpr (PINGPONG) ptx::named_barrier_sync(own_turn, 2 * GROUP);
            if constexpr (Plan::PROMOTE == 0) {
                multiply(sums, ring, shared, work.steps, group_row, lane);
            } else {
                multiply_promoted(sums, ring, shared, work.steps, group_row, lane);
            }
            if constexpr (PINGPONG) {
                if (item + gridDim.x < tiles.count) {
                    ptx::named_barrier_arrive(other_turn, 2 * GROUP);
                }
            }
            if constexpr (Plan::PROMOTE == 0) finish(ring, shared, lane);
            if constexpr (PINGPONG) ring.skip(skipped);
            if constexpr (Plan::SPLITS) {
                if (item >= tiles.whole) {
                    if (!meet(sums, args, tiles, work, consumer)) continue;
                }
            }
            if constexpr (Plan::PLANES > 1) mend(sums, args, work, lane);
            const typename Plan::Epilogue epilogue(args, work.batch);
#pragma unroll
            for (int i = 0; i < STEPS_M; ++i) {
                WgmmaWork at = work;
                at.row += i * 64;
                store(sums[i], epilogue, args, buffers, buffer, at, lane);
            }
        }
        if (!Plan::DIRECT && lane == 0) {
            ptx::bulk_wait_read<0>();  // they are complete when the grid is
        }
    }

    static void run(const Args& args) {
        if constexpr (Plan::PDL) ptx::griddep_launch_dependents();
        Shared shared;
        if constexpr (__is_base_of(WindowPlan, Plan)) shared.tap_rows = Plan::tap_rows(args);
        const Tiles tiles(args);
        // Through a shuffle, so that the compiler knows that all lanes of a warp agree.
        const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / GROUP), 0);
        if (threadIdx.x == 0) {
            for (int stage = 0; stage < Plan::STAGES; ++stage) {
                ptx::mbarrier_init(shared.full + stage * 8, 1);
                ptx::mbarrier_init(shared.empty + stage * 8, EMPTY_ARRIVALS);
            }
            ptx::fence_mbarrier_init();
            ptx::tma_prefetch(&args.map_a);
            ptx::tma_prefetch(&args.map_b);
            if constexpr (!Plan::DIRECT) ptx::tma_prefetch(&args.map_y[0]);
        }
        __syncthreads();
        if constexpr (Plan::PDL) ptx::griddep_wait();
        if (group == 0) {
            if constexpr (MOVES_REGISTERS) ptx::setmaxnreg_dec<PRODUCER_REGISTERS>();
            if (threadIdx.x == 0) produce(args, shared, tiles);
        } else {
            if constexpr (MOVES_REGISTERS) ptx::setmaxnreg_inc<CONSUMER_REGISTERS>();
            consume(args, shared, tiles, group - 1);
        }
    }
};

}  // namespace ge2
