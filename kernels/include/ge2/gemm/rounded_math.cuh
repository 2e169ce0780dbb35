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

// Absolute error 3.3e-5; a polynomial in x * x, so that no special function unit is needed.
inline float erf(float x) {
    const float c = x > 3.2f ? 3.2f : x < -3.2f ? -3.2f : x;
    const float u = c * c;
    float p = -2.400077248e-9f;
    p = ::fmaf(p, u, 1.41913460538e-7f);
    p = ::fmaf(p, u, -3.7397328469e-6f);
    p = ::fmaf(p, u, 5.84666813666e-5f);
    p = ::fmaf(p, u, -6.11288007349e-4f);
    p = ::fmaf(p, u, 4.58410754800e-3f);
    p = ::fmaf(p, u, -2.58143469691e-2f);
    p = ::fmaf(p, u, 1.11864216626e-1f);
    p = ::fmaf(p, u, -3.75707238913e-1f);
    p = ::fmaf(p, u, 1.12832570076f);
    return p * c;
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
