// Which query rows and keys a block of a decoding attention takes, and where keys lie in memory.
#pragma once

#include <ge2/attention/place.cuh>
#include <ge2/gemm/operand.cuh>

namespace ge2 {

// Up to ROWS query rows of one key head: query heads of a group are neighbours, then queries.
struct DecodeShare {
    Sequence sequence;
    int key_head, group;
    int first, rows;

    // A clamped row is computed along, and stored by nobody.
    Place place(int row) const {
        const int r = first + lesser(row, rows - 1);
        return {sequence, key_head * group + r % group, r / group};
    }

    // Keys that any of the rows sees, from a multiple of 16 on.
    KeyRange keys() const {
        const KeyBand& band = sequence.band;
        return {band.of(first / group).begin / 16 * 16, band.of((first + rows - 1) / group).end};
    }
};

// Number index of ceil(queries * group / ROWS) for each key head of each sample.
template <int ROWS, typename Length, typename Args>
inline DecodeShare decode_share(const Args& args, unsigned index) {
    const int total = args.queries * args.group;
    const unsigned tiles = (total + ROWS - 1) / ROWS, heads = args.heads / args.group;
    const int first = static_cast<int>(index % tiles) * ROWS;
    const unsigned rest = index / tiles;
    return {padded_sequence<Length>(args, static_cast<int>(rest / heads)),
            static_cast<int>(rest % heads), args.group, first, lesser(ROWS, total - first)};
}

// Part number `part` of `parts` of the keys, in whole tiles of 16.
inline KeyRange part_of(const KeyRange& keys, int part, int parts) {
    const long long tiles = keys.end > keys.begin ? (keys.end - keys.begin + 15) / 16 : 0;
    const int begin = keys.begin + static_cast<int>(tiles * part / parts) * 16;
    return {begin, lesser(keys.begin + static_cast<int>(tiles * (part + 1) / parts) * 16, keys.end)};
}

// Keys and values of one head that follow each other at even steps.
template <typename T>
struct EvenCache {
    const T *keys, *values;
    long long key_step, value_step;

    template <typename Args>
    EvenCache(const Args& args, const Place& place)
        : keys(place.keys_of<T>(args.k, false, args.group)),
          values(place.keys_of<T>(args.v, false, args.group)),
          key_step(args.k.row),
          value_step(args.v.row) {}

    int page(int key) const { return 0; }
    const T* key(int key, int page) const { return keys + key * key_step; }
    const T* value(int key, int page) const { return values + key * value_step; }
};

// The same in pages of SIZE keys, which a table names; a tile of 16 keys lies within one.
template <typename T, typename Entry, int SIZE>
struct PagedCache {
    static_assert(SIZE % 16 == 0, "a tile lies within one page");
    const T *keys, *values;
    const Entry* table;
    long long key_page, value_page, key_step, value_step;

    template <typename Args>
    PagedCache(const Args& args, const Place& place)
        : keys(static_cast<const T*>(args.k.pointer) + place.head / args.group * args.k.head),
          values(static_cast<const T*>(args.v.pointer) + place.head / args.group * args.v.head),
          table(static_cast<const Entry*>(args.table) + place.sequence.index * args.table_step),
          key_page(args.k.batch),
          value_page(args.v.batch),
          key_step(args.k.row),
          value_step(args.v.row) {}

    long long page(int key) const { return table[key / SIZE]; }
    const T* key(int key, long long page) const {
        return keys + page * key_page + key % SIZE * key_step;
    }
    const T* value(int key, long long page) const {
        return values + page * value_page + key % SIZE * value_step;
    }
};

}  // namespace ge2
