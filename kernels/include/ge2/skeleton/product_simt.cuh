// Tiles of A B transposed, by multiply-adds of f32, from rows that a staging hands out.
#pragma once

namespace ge2 {

// THREADS threads multiply BM rows of A with BN rows of B, which follow them in a staged tile. kLanes
// neighbouring threads share rows of the product; a thread has kRows x kColumns of its elements.
template <int THREADS, int BM, int BN>
struct ProductSimt {
    static constexpr int kLanes = 16;
    static constexpr int kRows = BM / (THREADS / kLanes);  // neighbours
    static constexpr int kColumns = BN / kLanes;           // kLanes apart

    float sum[kRows][kColumns] = {};

    // Where this thread's elements are in the tile.
    static int row(int q) { return static_cast<int>(threadIdx.x) / kLanes * kRows + q; }
    static int column(int c) { return static_cast<int>(threadIdx.x) % kLanes + c * kLanes; }

    float& at(int q, int c) { return sum[q][c]; }

    // Adds the products of `length` words of each row: read(r, i) is word i of row r.
    template <typename Prologue, typename Read>
    void add(Read read, int length) {
        for (int i = 0; i < length; ++i) {
            float a[kRows], b[kColumns];
#pragma unroll
            for (int q = 0; q < kRows; ++q) a[q] = Prologue::of(read(row(q), i));
#pragma unroll
            for (int c = 0; c < kColumns; ++c) b[c] = read(BM + column(c), i);
#pragma unroll
            for (int q = 0; q < kRows; ++q)
#pragma unroll
                for (int c = 0; c < kColumns; ++c) sum[q][c] += a[q] * b[c];
        }
    }
};

}  // namespace ge2
