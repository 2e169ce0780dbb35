// Which tile of queries a block takes next, and which blocks of keys it meets.
#pragma once

#include <ge2/attention/place.cuh>
#include <ge2/gemm/operand.cuh>

namespace ge2 {

struct AttentionTile {
    int query;  // its first one
    int head, batch;
};

// All tiles of a call, numbered. Heads in order, each tile by tile; or, with HEAVY_FIRST, heads in
// sections whose keys and values fit the L2 cache, each with its last queries first: under a causal
// mask those meet most keys, and blocks that take them early end together.
template <int BM, bool HEAVY_FIRST>
struct AttentionTiles {
    unsigned rows, heads, all_heads, section, count;

    template <typename Args>
    explicit AttentionTiles(const Args& args)
        : rows((static_cast<unsigned>(args.queries) + BM - 1) / BM),
          heads(static_cast<unsigned>(args.heads)),
          all_heads(heads * static_cast<unsigned>(args.batch)),
          section(static_cast<unsigned>(args.section)),
          count(rows * all_heads) {}

    AttentionTile operator[](unsigned item) const {
        unsigned head, row;
        if constexpr (HEAVY_FIRST) {
            const unsigned first = item / (section * rows) * section;
            const unsigned size = first + section < all_heads ? section : all_heads - first;
            const unsigned rest = item - first * rows;
            head = first + rest % size;
            row = rows - 1 - rest / size;
        } else {
            head = item / rows;
            row = item - head * rows;
        }
        return {static_cast<int>(row) * BM, static_cast<int>(head % heads),
                static_cast<int>(head / heads)};
    }
};

// Keys that queries see, with the bounds left out that no query has: AHEAD, where keys are seen only
// up to some place behind the query, BEHIND, only from some place before it.
template <bool AHEAD, bool BEHIND>
struct KeyEdges {
    KeyBand band;

    int end(int query) const {
        if constexpr (AHEAD) return band.of(query).end;
        return band.length;
    }

    int begin(int query) const {
        if constexpr (BEHIND) return band.of(query).begin;
        return 0;
    }

    // Whether some query from first to last does not see all keys of a block.
    bool cut(int key, int keys, int first, int last) const {
        const bool above = key + keys > end(first);
        if constexpr (BEHIND) return above || key < begin(last);
        return above;
    }
};

// Blocks of BN keys that the queries of a tile see, from the last to the first; at least one, so
// that queries without keys come out as zeros in the same way.
struct KeyBlocks {
    int last, count;

    template <int BN, typename Edges>
    static KeyBlocks of(const Edges& edges, int first_query, int last_query) {
        const int blocks = (edges.end(last_query) + BN - 1) / BN;
        const int last = blocks > 1 ? blocks - 1 : 0;
        return {last, last - lesser(edges.begin(first_query) / BN, last) + 1};
    }
};

}  // namespace ge2
