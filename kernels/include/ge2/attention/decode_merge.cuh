// The states of warps, then of blocks, that shared the keys of some query rows, merged in order.
#pragma once

#include <ge2/attention/decode.cuh>

namespace ge2 {

// A row's state in memory: DV sums of weighted values, the maximum, the sum of weights, two unused.
template <int DV>
struct DecodeState {
    static constexpr int PITCH = DV + 4;
    static constexpr int QUADS = DV / 4;
};

// Four neighbouring elements of a row's result, not yet divided by the sum of weights.
struct DecodeQuad {
    float4 value;
    float most;
    float sum;
};

// Merges COUNT states, `apart` floats from each other; load(pointer) reads 16 bytes.
template <int DV, int UNROLL, typename Load>
inline DecodeQuad merge_states(const float* states, long long apart, int count, int quad,
                               Load load) {
    DecodeQuad merged{make_float4(0.f, 0.f, 0.f, 0.f), -inf_f32(), 0.f};
#pragma unroll UNROLL
    for (int s = 0; s < count; ++s) merged.most = fmaxf(merged.most, load(states + s * apart + DV).x);
    const float shift = safe_peak(merged.most);
#pragma unroll UNROLL
    for (int s = 0; s < count; ++s) {
        const float4 part = load(states + s * apart + quad * 4);
        const float4 scalars = load(states + s * apart + DV);
        const float shrink = ptx::ex2_approx_ftz(scalars.x - shift);
        merged.value.x += part.x * shrink;
        merged.value.y += part.y * shrink;
        merged.value.z += part.z * shrink;
        merged.value.w += part.w * shrink;
        merged.sum += scalars.y * shrink;
    }
    return merged;
}

// Merges the warps of a block: take(row, quad, merged) is called for each row below `rows` and each
// four of its elements, by one thread. shared: WARPS * 8 rows.
template <int WARPS, typename T, int D, int DV, int TILES, typename Take>
inline void merge_warps(DecodeWarp<T, D, DV, TILES>& warp, float* shared, int rows,
                        Take take) {
    using State = DecodeState<DV>;
    const int lane = warp.lane;
    float* mine = shared + (threadIdx.x / 32 * 8 + lane % 4 * 2) * State::PITCH;
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            float* row = mine + c * State::PITCH;
            float sum = warp.sum[i][c];
#pragma unroll
            for (int other = 4; other < 32; other *= 2) {
                sum += __shfl_xor_sync(0xffffffffu, sum, other);
            }
#pragma unroll
            for (int m = 0; m < DV / 16; ++m) {
                *reinterpret_cast<float2*>(row + element_of<DV>(m, lane)) =
                    make_float2(warp.out[m][i][c], warp.out[m][i][c + 2]);
            }
            if (lane < 4) {
                *reinterpret_cast<float4*>(row + DV) =
                    make_float4(warp.most[i][c], sum, 0.f, 0.f);
            }
        }
        __syncthreads();
        const int here = rows - i * 8 < 8 ? rows - i * 8 : 8;
        for (int at = threadIdx.x; at < here * State::QUADS; at += WARPS * 32) {
            const int row = at / State::QUADS;
            take(i * 8 + row, at % State::QUADS,
                 merge_states<DV, WARPS>(
                     shared + row * State::PITCH, 8 * State::PITCH, WARPS, at % State::QUADS,
                     [](const float* p) { return *reinterpret_cast<const float4*>(p); }));
        }
        __syncthreads();
    }
}

// Publishes a block's share of a row for merge_splits.
template <int DV>
inline void store_state(float* state, int quad, const DecodeQuad& merged) {
    *reinterpret_cast<float4*>(state + quad * 4) = merged.value;
    if (quad == 0) {
        *reinterpret_cast<float4*>(state + DV) = make_float4(merged.most, merged.sum, 0.f, 0.f);
    }
}

// Whether this block is the last of `count` that ask with the same ticket, which is then zero again;
// it sees what the others wrote before they asked.
inline bool is_last_of(unsigned* ticket, int count, unsigned* shared_word) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *shared_word = atomicAdd(ticket, 1u);
    __syncthreads();
    if (*shared_word != static_cast<unsigned>(count) - 1u) return false;
    __threadfence();
    if (threadIdx.x == 0) *ticket = 0;
    return true;
}

// Merges the blocks that shared the keys of `rows` rows: states is [splits][rows][PITCH].
template <int THREADS, int DV, typename Take>
inline void merge_splits(const float* states, int rows, int splits, Take take) {
    using State = DecodeState<DV>;
    for (int at = threadIdx.x; at < rows * State::QUADS; at += THREADS) {
        const int row = at / State::QUADS;
        take(row, at % State::QUADS,
             merge_states<DV, 8>(states + row * State::PITCH,
                                 static_cast<long long>(rows) * State::PITCH, splits,
                                 at % State::QUADS, [](const float* p) {
                                     const uint4 raw = ptx::load_l2_16(p);
                                     return make_float4(
                                         __uint_as_float(raw.x), __uint_as_float(raw.y),
                                         __uint_as_float(raw.z), __uint_as_float(raw.w));
                                 }));
    }
}

}  // namespace ge2
