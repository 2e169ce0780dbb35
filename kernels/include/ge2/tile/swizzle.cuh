// A square-ish shared tile that is written along one axis and read along the other, in chunks.
#pragma once

#include <ge2/types.cuh>

namespace ge2 {

// Rows of ROW elements (a power of two) in chunks of E. A thread that holds an E x E block writes
// chunk c of E neighbouring rows; the exclusive or spreads those over all banks, and a row read
// from chunk 0 upwards still touches each bank once.
template <typename T, int E, int ROW>
struct SwizzledTile {
    using Chunk = Vec<T, E>;
    static constexpr int kChunks = ROW / E;
    static constexpr int bytes(int rows) { return rows * ROW * static_cast<int>(sizeof(T)); }

    Chunk* base;

    explicit SwizzledTile(unsigned char* memory) : base(reinterpret_cast<Chunk*>(memory)) {}
    Chunk& at(int row, int chunk) {
        return base[row * kChunks + (chunk ^ ((row / E) & (kChunks - 1)))];
    }
};

}  // namespace ge2
