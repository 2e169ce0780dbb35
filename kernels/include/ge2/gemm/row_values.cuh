// One value per row of a product, made beside it: a block leaves what its columns give in the
// workspace, and the last block of a row of tiles joins these parts in the order of the tiles.
#pragma once

#include <ge2/scalar.cuh>
#include <ge2/types.cuh>

namespace ge2 {

enum class RowKind { SUM, SUMSQUARE, MAX };

// A product without such values.
struct NoRowValues {
    static constexpr bool ACTIVE = false;
    static constexpr int BYTES = 0;
};

// BM rows of a tile; PARTS warps (or so) see a share of its columns each.
template <RowKind KIND, int BM, int PARTS>
struct RowValues {
    static constexpr bool ACTIVE = true;
    static constexpr int BYTES = BM * PARTS * 4 + 16;

    float* parts;  // [PARTS][BM] in shared memory
    unsigned* is_last;

    explicit RowValues(unsigned char* memory)
        : parts(reinterpret_cast<float*>(memory + 16)),
          is_last(reinterpret_cast<unsigned*>(memory)) {}

    static float none() { return KIND == RowKind::MAX ? -inf_f32() : 0.f; }
    static float join(float a, float b) { return KIND == RowKind::MAX ? max_nan(a, b) : a + b; }

    // Takes in an element as it is stored.
    template <typename T>
    static float with(float value, T element) {
        const float x = to_compute(element);
        return join(value, KIND == RowKind::SUMSQUARE ? x * x : x);
    }

    // Joins LANES neighbouring lanes; all 32 take part.
    template <int LANES>
    static float across(float value) {
#pragma unroll
        for (int mask = 1; mask < LANES; mask *= 2) {
            value = join(value, __shfl_xor_sync(~0u, value, mask));
        }
        return value;
    }

    void put(int part, int row, float value) const { parts[part * BM + row] = value; }

    // Hands the block's values on, after all have been put. `shared` has BM floats for each of the
    // `columns` tiles of this row of tiles; arrived is zero at entry and zero again at exit.
    template <int THREADS, typename T>
    void finish(float* shared, unsigned* arrived, T* y, long long step, int rows, int column,
                int columns) const {
        const int thread = static_cast<int>(threadIdx.x);
        __syncthreads();
        for (int row = thread; row < BM; row += THREADS) {
            float value = parts[row];
#pragma unroll
            for (int part = 1; part < PARTS; ++part) value = join(value, parts[part * BM + row]);
            shared[column * BM + row] = value;
        }
        __threadfence();
        __syncthreads();
        if (thread == 0) *is_last = atomicAdd(arrived, 1u) + 1u == static_cast<unsigned>(columns);
        __syncthreads();
        if (*is_last == 0) return;
        __threadfence();
        for (int row = thread; row < BM && row < rows; row += THREADS) {
            float value = __ldcg(shared + row);
            for (int tile = 1; tile < columns; ++tile) {
                value = join(value, __ldcg(shared + tile * BM + row));
            }
            y[row * step] = from_compute<T>(value);
        }
        if (thread == 0) *arrived = 0;
    }
};

}  // namespace ge2
