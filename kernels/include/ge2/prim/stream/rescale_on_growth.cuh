/*--- toml
primitive = "stream"
summary = "sums are rescaled only where the maximum grows: a branch that is soon never taken"
numerics = "rescaled-on-growth"
---*/
#pragma once

#include <ge2/tile/weighted.cuh>

namespace ge2::stream::rescale_on_growth {

template <typename Read>
inline Weighted fold(long long first, long long n, long long step, Read read) {
    Weighted state = no_weights();
#pragma unroll 4
    for (long long i = first; i < n; i += step) {
        const float2 x = read(i);
        if (x.x > state.m) {
            const float keep = expf(state.m - x.x);
            state = {x.x, state.l * keep, state.acc * keep};
        }
        const float weight = expf(x.x - safe_shift(state.m));
        state.l += weight;
        state.acc += weight * x.y;
    }
    return state;
}

}  // namespace ge2::stream::rescale_on_growth
