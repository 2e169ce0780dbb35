/*--- toml
primitive = "stream"
summary = "the maximum first, then the weighted sums in a second pass that rescales nothing"
numerics = "maximum-first"
---*/
#pragma once

#include <ge2/tile/weighted.cuh>

namespace ge2::stream::two_pass {

template <typename Read>
inline Weighted fold(long long first, long long n, long long step, Read read) {
    Weighted state = no_weights();
#pragma unroll 4
    for (long long i = first; i < n; i += step) state.m = max_nan(state.m, read(i).x);
    const float shift = safe_shift(state.m);
#pragma unroll 4
    for (long long i = first; i < n; i += step) {
        const float2 x = read(i);
        const float weight = expf(x.x - shift);
        state.l += weight;
        state.acc += weight * x.y;
    }
    return state;
}

}  // namespace ge2::stream::two_pass
