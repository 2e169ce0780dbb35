// The state of a softmax-weighted mean: maximum of the scores, sum of weights, weighted sum.
#pragma once

#include <ge2/scalar.cuh>

namespace ge2 {

struct Weighted {
    float m;
    float l;
    float acc;
};

inline Weighted no_weights() { return {-__uint_as_float(0x7f800000u), 0.f, 0.f}; }

// m, or 0 where m is -inf: exp(-inf - 0) is 0, exp(-inf - -inf) would be NaN.
inline float safe_shift(float m) { return m == -__uint_as_float(0x7f800000u) ? 0.f : m; }

inline Weighted merge_weighted(const Weighted& a, const Weighted& b) {
    const float m = max_nan(a.m, b.m);
    const float shift = safe_shift(m);
    const float by_a = expf(a.m - shift), by_b = expf(b.m - shift);
    return {m, a.l * by_a + b.l * by_b, a.acc * by_a + b.acc * by_b};
}

}  // namespace ge2
