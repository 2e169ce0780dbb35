// Products of a few rows X with a large matrix W of weights, on CUDA cores: W is read once, in
// 16-byte vectors with many loads in flight, straight into registers.
#pragma once

#include <ge2/gemm/wait_once.cuh>
#include <ge2/ptx/ldst.cuh>
#include <ge2/types.cuh>

namespace ge2 {

template <typename T>
struct WeightVector {
    static constexpr int SIZE = 16 / sizeof(T);
    float v[SIZE];

    explicit WeightVector(uint4 raw) {
        const Vec<T, SIZE>& stored = *reinterpret_cast<const Vec<T, SIZE>*>(&raw);
#pragma unroll
        for (int e = 0; e < SIZE; ++e) v[e] = to_compute(stored[e]);
    }
    explicit WeightVector(const T* p) : WeightVector(*reinterpret_cast<const uint4*>(p)) {}
};

// W's rows run along k: a warp takes ROWS of them at a time, PARTS warps share k.
template <typename T, int M, int ROWS, int UNROLL, int PARTS>
struct SkinnyRows {
    static constexpr int SIZE = WeightVector<T>::SIZE;
    static constexpr int STEP = PARTS * 32;

    float acc[ROWS][M] = {};

    // waits: see wait_once; x is read only after that.
    void add(const T* const (&w)[ROWS], const T* const (&x)[M], int depth, int part, int lane,
             bool& waits) {
        const int vectors = depth / SIZE;
        int at = part * 32 + lane;
        for (; at + (UNROLL - 1) * STEP < vectors; at += UNROLL * STEP) {
            add_vectors<UNROLL>(w, x, at, waits);
        }
        for (; at < vectors; at += STEP) add_vectors<1>(w, x, at, waits);
        wait_once(waits);
        const int k = vectors * SIZE + lane;
        if (part != 0 || k >= depth) return;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int m = 0; m < M; ++m) {
                acc[r][m] = fmaf(to_compute(w[r][k]), to_compute(x[m][k]), acc[r][m]);
            }
        }
    }

    // Every lane gets the sums over the warp.
    void reduce_warp() {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int m = 0; m < M; ++m) {
#pragma unroll
                for (int other = 16; other > 0; other /= 2) {
                    acc[r][m] += __shfl_xor_sync(0xffffffffu, acc[r][m], other);
                }
            }
        }
    }

private:
    template <int COUNT>
    void add_vectors(const T* const (&w)[ROWS], const T* const (&x)[M], int at, bool& waits) {
        uint4 raw[COUNT][ROWS];
#pragma unroll
        for (int u = 0; u < COUNT; ++u) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                raw[u][r] = ptx::load_nc_16(w[r] + static_cast<long long>(at + u * STEP) * SIZE);
            }
        }
        wait_once(waits);
#pragma unroll
        for (int u = 0; u < COUNT; ++u) {
#pragma unroll
            for (int m = 0; m < M; ++m) {
                const WeightVector<T> right(x[m] + static_cast<long long>(at + u * STEP) * SIZE);
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    const WeightVector<T> left(raw[u][r]);
#pragma unroll
                    for (int e = 0; e < SIZE; ++e) {
                        acc[r][m] = fmaf(left.v[e], right.v[e], acc[r][m]);
                    }
                }
            }
        }
    }
};

// W's rows run along n: a thread takes SIZE columns, and every PARTS-th group of UNROLL of k.
template <typename T, int M, int UNROLL, int PARTS>
struct SkinnyColumns {
    static constexpr int SIZE = WeightVector<T>::SIZE;

    float acc[M][SIZE] = {};

    // w points at this thread's columns; all of them are inside.
    void add(const T* w, long long stride_k, const T* const (&x)[M], int depth, int part) {
        int k = part * UNROLL;
        for (; k + UNROLL <= depth; k += PARTS * UNROLL) add_rows<UNROLL>(w, stride_k, x, k);
        const int end = k + UNROLL < depth ? k + UNROLL : depth;
        for (; k < end; ++k) add_rows<1>(w, stride_k, x, k);
    }

private:
    template <int COUNT>
    void add_rows(const T* w, long long stride_k, const T* const (&x)[M], int k) {
        uint4 raw[COUNT];
#pragma unroll
        for (int u = 0; u < COUNT; ++u) raw[u] = ptx::load_nc_16(w + (k + u) * stride_k);
#pragma unroll
        for (int u = 0; u < COUNT; ++u) {
            const WeightVector<T> left(raw[u]);
#pragma unroll
            for (int m = 0; m < M; ++m) {
                const float right = to_compute(x[m][k + u]);
#pragma unroll
                for (int e = 0; e < SIZE; ++e) acc[m][e] = fmaf(left.v[e], right, acc[m][e]);
            }
        }
    }
};

}  // namespace ge2
