// Cheaper functions for epilogues whose result is rounded to f16 or bf16. They stand in for those
// of <ge2/scalar.cuh> under the same names; what is not here is taken from there.
#pragma once

#include <ge2/ptx/approx.cuh>
#include <ge2/scalar.cuh>

namespace ge2::rounded {

// Relative error 2^-21 and, from the argument's rounding, |x| 2^-24.
inline float exp(float x) { return ptx::ex2_approx(x * 1.442695041f); }
inline double exp(double x) { return ge2::exp(x); }

// Relative error 2^-23.
inline float reciprocal(float x) { return ptx::rcp_approx(x); }
inline double reciprocal(double x) { return ge2::reciprocal(x); }

// Absolute error 2.1e-5, and exactly 1 or -1 beyond 3.2, so that the tails of a GELU vanish. A
// polynomial in x * x, because the special function units are the scarcer ones.
inline float erf(float x) {
    const float u = x * x;
    float p = -2.13549467e-09f;
    p = ::fmaf(p, u, 1.28775298e-07f);
    p = ::fmaf(p, u, -3.46399861e-06f);
    p = ::fmaf(p, u, 5.52862184e-05f);
    p = ::fmaf(p, u, -0.000589339994f);
    p = ::fmaf(p, u, 0.00449170265f);
    p = ::fmaf(p, u, -0.0255826414f);
    p = ::fmaf(p, u, 0.11154256f);
    p = ::fmaf(p, u, -0.375496298f);
    p = ::fmaf(p, u, 1.12828159f);
    return x > 3.2f ? 1.f : x < -3.2f ? -1.f : p * x;
}
inline double erf(double x) { return ge2::erf(x); }

}  // namespace ge2::rounded

namespace ge2::rounded_f16 {

using namespace ge2;
using rounded::erf;
using rounded::exp;
using rounded::reciprocal;

// Relative error below 2^-20 where |x| > 2^-3, absolute 2^-23 elsewhere.
inline float tanh(float x) {
    return 1.f - 2.f * ptx::rcp_approx(ptx::ex2_approx(x * 2.885390082f) + 1.f);
}
inline double tanh(double x) { return ge2::tanh(x); }

}  // namespace ge2::rounded_f16

namespace ge2::rounded_bf16 {

using namespace ge2;
using rounded::erf;
using rounded::exp;
using rounded::reciprocal;

// Relative error 2^-11.
inline float tanh(float x) { return ptx::tanh_approx(x); }
inline double tanh(double x) { return ge2::tanh(x); }

}  // namespace ge2::rounded_bf16
