/*--- toml
primitive = "stream"
summary = "every element updates the running maximum and rescales the sums"
numerics = "rescaled-per-element"
---*/
#pragma once

#include <ge2/tile/weighted.cuh>

namespace ge2::stream::online {

// Folds elements first, first + step, ... below n; read(i) gives (score, value).
template <typename Read>
inline Weighted fold(long long first, long long n, long long step, Read read) {
    Weighted state = no_weights();
#pragma unroll 4
    for (long long i = first; i < n; i += step) {
        const float2 x = read(i);
        const float m = max_nan(state.m, x.x);
        const float shift = safe_shift(m);
        const float keep = expf(state.m - shift), weight = expf(x.x - shift);
        state = {m, state.l * keep + weight, state.acc * keep + weight * x.y};
    }
    return state;
}

}  // namespace ge2::stream::online
