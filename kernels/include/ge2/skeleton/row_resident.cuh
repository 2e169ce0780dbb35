// Row operators whose row stays in registers, or in shared memory that each thread copies and reads
// back for itself: read once, reduced in stages or by updates, written.
#pragma once

#include <ge2/ptx/cp_async.cuh>
#include <ge2/skeleton/row_stages.cuh>
#include <ge2/tile/opaque.cuh>
#include <ge2/tile/vector.cuh>

namespace ge2 {

// Where one thread's part of a row lies: U vectors of V elements, LANES vectors apart. FULL: every
// thread has U whole vectors. Where rows start or end off a 16-byte boundary there are two ways. ENDS:
// vectors are whole, and the few elements before and after them go to one thread each. Otherwise, for
// few threads, the first and last vector are cut.
template <typename Row, int V, int U, int FULL, bool ENDS>
struct PartPlaces {
    static constexpr bool kEnds = ENDS;
    static constexpr bool kWhole = Row::kIsWhole || ENDS;

    int valid[U];
    int skip[U];
    long long column[U];
    long long end_column;
    bool has_end;

    void locate(const Row& row, int rank, int lanes, long long n) {
        const int shift = row.template shift<V>();
        long long head = 0, body = 0;
        if constexpr (ENDS) {
            head = (V - shift) & (V - 1);
            head = head < n ? head : n;
            body = (n - head) / V;
            const long long past = head + body * V;
            end_column = rank < head ? rank : past + rank - head;
            has_end = end_column < n && (rank < head || end_column >= past);
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const long long place = static_cast<long long>(u * lanes + rank);
            skip[u] = 0;
            if constexpr (ENDS) {
                column[u] = head + place * V;
                valid[u] = u < FULL || place < body ? V : 0;
            } else {
                column[u] = place * V - shift;
                const long long left = n - column[u];
                valid[u] =
                    u < FULL || left >= V ? V : (!kWhole && left > 0 ? static_cast<int>(left) : 0);
                if (Row::kIsShifted && column[u] < 0) skip[u] = static_cast<int>(-column[u]);
            }
        }
    }
    bool is_whole(int u) const { return u < FULL || (valid[u] == V && (kWhole || skip[u] == 0)); }

    // Calls visit(x, column) for each element that exists. Only the first and the last vector of a
    // row can be cut, so that the test of each element is kept out of the way of the others.
    template <typename Part, typename Visit>
    static void each_of(const Part& part, unsigned zero, Visit visit) {
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (part.is_whole(u)) {
                const auto& now = part.chunk(u, zero);
#pragma unroll
                for (int e = 0; e < V; ++e) visit(part.value(now, e, zero), part.column[u] + e);
            } else if (!kWhole && part.valid[u] > 0) {
                const auto& now = part.chunk(u, zero);
#pragma unroll
                for (int e = 0; e < V; ++e)
                    if (e >= part.skip[u] && e < part.valid[u])
                        visit(part.value(now, e, zero), part.column[u] + e);
            }
        }
        if constexpr (ENDS) {
            if (part.has_end) visit(part.end.value(0), part.end_column);
        }
    }
};

// In registers. AGAIN: 16-bit elements stay packed from pass to pass.
template <typename Row, int V, int U, int FULL, bool ENDS, bool AGAIN>
struct ResidentPart : PartPlaces<Row, V, U, FULL, ENDS> {
    using Places = PartPlaces<Row, V, U, FULL, ENDS>;

    typename Row::template Chunk<V> x[U];
    typename Row::template Chunk<1> end;

    ResidentPart(const Row& row, unsigned char*, int rank, int lanes, long long n) {
        this->locate(row, rank, lanes, n);
#pragma unroll
        for (int u = 0; u < U; ++u)
            row.template load<V, Places::kWhole>(x[u], this->column[u], this->valid[u],
                                                 this->skip[u]);
        if constexpr (ENDS) row.load(end, this->end_column, this->has_end ? 1 : 0);
    }
    void wait() const {}
    const typename Row::template Chunk<V>& chunk(int u, unsigned) const { return x[u]; }
    typename Row::Value value(const typename Row::template Chunk<V>& now, int e,
                              unsigned zero) const {
        return AGAIN ? now.value(e, zero) : now.value(e);
    }
    template <typename Visit>
    void each(unsigned zero, Visit visit) const {
        this->each_of(*this, zero, visit);
    }
};

// In shared memory, unpacked anew in each pass: few registers, so that more blocks have their loads
// under way. A thread waits for its own copies only, no barrier is needed.
template <typename Row, int LANES, int V, int U, int FULL, bool ENDS>
struct CopiedPart : PartPlaces<Row, V, U, FULL, ENDS> {
    const Row& row;
    unsigned char* stage;
    int rank;
    typename Row::template Chunk<1> end;

    CopiedPart(const Row& of, unsigned char* memory, int place, int lanes, long long n)
        : row(of), stage(memory), rank(place) {
        this->locate(row, rank, lanes, n);
#pragma unroll
        for (int u = 0; u < U; ++u)
            row.template copy<V, LANES * U>(stage, u * LANES + rank, this->column[u],
                                            this->valid[u], this->skip[u]);
        ptx::cp_async_commit();
        if constexpr (ENDS) row.load(end, this->end_column, this->has_end ? 1 : 0);
    }
    void wait() const { ptx::cp_async_wait<0>(); }
    // NOTE: without the unknown zero the compiler keeps all of the first pass in registers.
    typename Row::template Chunk<V> chunk(int u, unsigned zero) const {
        typename Row::template Chunk<V> x;
        row.template load_staged<V, LANES * U>(x, stage, u * LANES + rank + static_cast<int>(zero));
        return x;
    }
    typename Row::Value value(const typename Row::template Chunk<V>& now, int e, unsigned) const {
        return now.value(e);
    }
    template <typename Visit>
    void each(unsigned zero, Visit visit) const {
        this->each_of(*this, zero, visit);
    }
};

// Where a thread stands: a block holds ROWS rows of LANES threads each.
template <int LANES, int ROWS>
struct RowsOfBlock {
    static constexpr int kLanes = LANES;
    static int rank() { return static_cast<int>(threadIdx.x) % LANES; }
    template <typename Linear>
    static Linear row() {
        return static_cast<Linear>(blockIdx.x) * ROWS + static_cast<Linear>(threadIdx.x / LANES);
    }
};

// BLOCKS consecutive blocks of THREADS hold one row.
template <int THREADS, int BLOCKS>
struct BlocksOfRow {
    static constexpr int kLanes = THREADS * BLOCKS;
    static int rank() {
        return static_cast<int>(blockIdx.x % BLOCKS * THREADS + threadIdx.x);
    }
    template <typename Linear>
    static Linear row() {
        return static_cast<Linear>(blockIdx.x / BLOCKS);
    }
};

// `stage` is this row's shared memory, where the part has any. EARLY: the extras are on their way
// while the row is reduced.
template <typename Op, typename Row, typename Group, typename Place, typename Part, int V, int U,
          bool EARLY, typename Linear, typename Args>
inline void row_resident(const Args& args, unsigned char* scratch, unsigned char* stage) {
    using Compute = typename Op::Compute;
    const int rank = Place::rank();
    const Linear wanted = Place::template row<Linear>();
    const bool active = wanted < static_cast<Linear>(args.rows);
    // Shuffles and barriers need all threads, so those beyond the last row repeat row 0.
    const Row row(args, active ? wanted : 0);
    Group group(scratch);
    const Part part(row, stage, rank, Place::kLanes, args.n);
    typename Row::template ExtraChunk<V> early[EARLY ? U : 1];
    if constexpr (EARLY) {
#pragma unroll
        for (int u = 0; u < U; ++u)
            row.template load<V, Part::kWhole>(early[u], part.column[u], part.valid[u],
                                               part.skip[u]);
    }
    typename Op::Values first{};
    if constexpr (Op::kPivot) {
        typename Row::template Chunk<1> head;
        row.load(head, 0, args.n > 0 ? 1 : 0);
        first = head.value(0);
    }
    part.wait();
    const Compute n = static_cast<Compute>(args.n);
    typename Op::State state = Op::init();
    if constexpr (Op::kStages > 0) {
        typename Op::Seen seen{};
        run_stages<Op, 0>(seen, part, group, first, n, args);
        state = Op::collect(seen, n);
    } else {
        part.each(args.zero[0], [&](const auto& x, long long index) {
            state = Op::update(state, x, first, index);
        });
        state = group.all(state, [](const auto& a, const auto& b) { return Op::merge(a, b); });
    }
    group.leave();
    if (!active) return;
    if constexpr (Op::kScalarOutputs) {
        if (rank == 0) {
            typename Row::template OutChunk<1> out;
            out.put(0, Op::finish(state, typename Op::Values{}, {}, first, 0, n));
            row.store_scalars(out, 1);
        }
    }
    if constexpr (Op::kRowOutputs) {
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (part.valid[u] == 0) continue;
            // Whole vectors have all their lanes: the compiler need not test them.
            const int valid = Part::kWhole ? V : part.valid[u];
            const int skip = Part::kWhole ? 0 : part.skip[u];
            typename Row::template ExtraChunk<V> extras;
            if constexpr (EARLY) {
                extras = early[u];
            } else {
                row.template load<V, Part::kWhole>(extras, part.column[u], valid, skip);
            }
            const auto x = part.chunk(u, args.zero[3]);
            typename Row::template OutChunk<V> out;
#pragma unroll
            for (int e = 0; e < V; ++e)
                out.put(e, Op::finish(state, part.value(x, e, args.zero[3]), extras.value(e),
                                      first, part.column[u] + e, n));
            row.template store<V, Part::kWhole>(out, part.column[u], valid, skip);
        }
        if constexpr (Part::kEnds) {
            if (!part.has_end) return;
            typename Row::template ExtraChunk<1> extras;
            row.load(extras, part.end_column, 1);
            typename Row::template OutChunk<1> out;
            out.put(0, Op::finish(state, part.end.value(0), extras.value(0), first,
                                  part.end_column, n));
            row.store(out, part.end_column, 1);
        }
    }
}

}  // namespace ge2
