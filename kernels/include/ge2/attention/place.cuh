// Operands of attention, and which queries and keys a block works on.
#pragma once

namespace ge2 {

// Strides are in elements; the elements of a head are neighbours.
struct HeadTensor {
    void* pointer;
    long long batch, head, row;
};
static_assert(sizeof(HeadTensor) == 32, "HeadTensor");

// Keys [begin, end).
struct KeyRange {
    int begin, end;
    bool has(int key) const { return begin <= key && key < end; }
};

// The keys that queries see: from `left` before a query's own place to `right` after it, of those
// below length. Both ends grow with the query, so that a tile of queries from a to b sees no key
// before of(a).begin or from of(b).end on, and all of its queries see those of seen_by_all(a, b).
struct KeyBand {
    int offset;  // place of query 0 among the keys
    int left, right, length;

    KeyRange of(int query) const {
        const int place = query + offset;
        const int begin = place - left, end = place + right + 1;
        return {begin > 0 ? begin : 0, end < length ? end : length};
    }
    KeyRange seen_by_all(int first, int last) const { return {of(last).begin, of(first).end}; }
};

// One of the sequences that a call attends to.
struct Sequence {
    int index;                   // among all
    int first_query, first_key;  // rows of q and k where it begins
    int queries, keys;
    KeyBand band;
};

// Some queries of one head of a sequence; none where `query` is not below the sequence's queries.
struct Place {
    Sequence sequence;
    int head, query;

    // The first row of the sequence in a tensor that is indexed by (key) head.
    template <typename T>
    T* queries_of(const HeadTensor& x, bool is_packed) const {
        return static_cast<T*>(x.pointer) + (is_packed ? 0 : sequence.index * x.batch) +
               head * x.head + sequence.first_query * x.row;
    }
    template <typename T>
    const T* keys_of(const HeadTensor& x, bool is_packed, int group) const {
        return static_cast<const T*>(x.pointer) + (is_packed ? 0 : sequence.index * x.batch) +
               head / group * x.head + sequence.first_key * x.row;
    }
};

template <typename T>
struct Absent {
    static constexpr bool value = false;
};
template <>
struct Absent<void> {
    static constexpr bool value = true;
};

// One sequence per sample. Length is the element type of kv_len, void where there is none.
template <typename Length, typename Args>
inline Sequence padded_sequence(const Args& args, int sample) {
    int length = args.keys, offset = args.offset;
    if constexpr (!Absent<Length>::value) {
        const auto given = static_cast<const Length*>(args.kv_len)[sample];
        offset = static_cast<int>(given) - args.queries;
        length = given < args.keys ? static_cast<int>(given) : args.keys;
    }
    return {sample, 0, 0, args.queries, args.keys, {offset, args.left, args.right, length}};
}

// Sequence number index of packed ones; its last query stands at its last key.
template <typename Length, typename Starts, typename Args>
inline Sequence packed_sequence(const Args& args, int index) {
    const Starts* q = static_cast<const Starts*>(args.q_starts) + index;
    const Starts* k = static_cast<const Starts*>(args.k_starts) + index;
    const int queries = static_cast<int>(q[1] - q[0]), keys = static_cast<int>(k[1] - k[0]);
    int length = keys;
    if constexpr (!Absent<Length>::value) {
        const auto given = static_cast<const Length*>(args.kv_len)[index];
        length = given < keys ? static_cast<int>(given) : keys;
    }
    const KeyBand band{length - queries, args.left, args.right, length};
    return {index, static_cast<int>(q[0]), static_cast<int>(k[0]), queries, keys, band};
}

// Number index of AttentionCall.tiles(ROWS). Tiles of a head are neighbours, because they read the
// same keys; the last come first, because under a causal mask they take longest.
template <int ROWS, typename Length, typename Starts, typename Args>
inline Place place_of(const Args& args, unsigned index) {
    const unsigned most = (args.queries + ROWS - 1) / ROWS;
    if constexpr (Absent<Starts>::value) {
        const unsigned tile = most - 1 - index % most, row = index / most;
        const Sequence sequence =
            padded_sequence<Length>(args, static_cast<int>(row / args.heads));
        return {sequence, static_cast<int>(row % args.heads), static_cast<int>(tile) * ROWS};
    } else {
        const unsigned tiles = most + args.batch;
        int tile = static_cast<int>(index % tiles);
        const Starts* starts = static_cast<const Starts*>(args.q_starts);
        int number = 0;
        for (; number < args.batch - 1; ++number) {
            const int own = (static_cast<int>(starts[number + 1] - starts[number]) + ROWS - 1) / ROWS;
            if (tile < own) break;
            tile -= own;
        }
        return {packed_sequence<Length, Starts>(args, number), static_cast<int>(index / tiles),
                tile * ROWS};
    }
}

}  // namespace ge2
