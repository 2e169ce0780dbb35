/*--- toml
primitive = "stream"
summary = "eight elements make a state of their own, which is merged once"
numerics = "rescaled-per-eight"
---*/
#pragma once

#include <ge2/tile/weighted.cuh>

namespace ge2::stream::blockwise {

template <typename Read>
inline Weighted fold(long long first, long long n, long long step, Read read) {
    constexpr int kBatch = 8;
    Weighted state = no_weights();
    for (long long base = first; base < n; base += kBatch * step) {
        float2 x[kBatch];
        Weighted own = no_weights();
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
            const long long i = base + k * step;
            x[k] = i < n ? read(i) : make_float2(own.m, 0.f);
            own.m = max_nan(own.m, x[k].x);
        }
        const float shift = safe_shift(own.m);
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
            if (base + k * step >= n) continue;
            const float weight = expf(x[k].x - shift);
            own.l += weight;
            own.acc += weight * x[k].y;
        }
        state = merge_weighted(state, own);
    }
    return state;
}

}  // namespace ge2::stream::blockwise
