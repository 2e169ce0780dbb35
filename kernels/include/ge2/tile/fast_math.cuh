// Cheaper functions for results that are stored in 16 bits: errors stay below 2^-20 of the result
// (of 1, for erf; results of exp below 2^-126 are zero), far inside the rounding of f16 and bf16.
// Other types take the exact functions.
#pragma once

#include <ge2/ptx/approx.cuh>
#include <ge2/scalar.cuh>

namespace ge2 {

// The larger of two, ignoring NaN.
inline float max_number(float a, float b) { return ::fmaxf(a, b); }
inline double max_number(double a, double b) { return ::fmax(a, b); }

}  // namespace ge2

namespace ge2::fast {

template <typename T>
inline T exp(T x) {
    return ge2::exp(x);
}
template <typename T>
inline T exp2(T x) {
    return ge2::exp2(x);
}
template <typename T>
inline T tanh(T x) {
    return ge2::tanh(x);
}
template <typename T>
inline T erf(T x) {
    return ge2::erf(x);
}
template <typename T>
inline T reciprocal(T x) {
    return ge2::reciprocal(x);
}

// Below 2^-126 the result is zero.
inline float exp(float x) { return ptx::ex2_approx_ftz(x * 1.4426950408889634f); }

inline float exp2(float x) { return ptx::ex2_approx_ftz(x); }

inline float reciprocal(float x) { return ptx::rcp_approx(x); }

// Of 1 and more; beyond 2^126 the result is zero.
inline float reciprocal_from_one(float x) { return ptx::rcp_approx_ftz(x); }

// 1 - 2 / (1 + exp(2x)); below 0.06, where that cancels, the series.
inline float tanh(float x) {
    const float far =
        1.0f - 2.0f * ptx::rcp_approx_ftz(1.0f + ptx::ex2_approx_ftz(x * 2.8853900817779268f));
    const float square = x * x;
    const float near = x * (1.0f + square * (-0.33333333f + square * 0.13333333f));
    return square < 0.0036f ? near : far;
}

// Abramowitz and Stegun 7.1.26, absolute error 1.5e-7; near zero the series keeps it relative.
inline float erf(float x) {
    const float a = ::fabsf(x);
    const float t = ptx::rcp_approx_ftz(1.0f + 0.3275911f * a);
    const float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f +
                    t * (-1.453152027f + t * 1.061405429f))));
    const float tail = p * ptx::ex2_approx_ftz(x * x * -1.4426950408889634f);
    const float far = x < 0.0f ? tail - 1.0f : 1.0f - tail;
    const float square = x * x;
    const float near = x * (1.1283791671f + square * (-0.3761263890f + square * 0.1128379167f));
    return square < 0.01f ? near : far;
}

}  // namespace ge2::fast
