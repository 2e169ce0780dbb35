// Host twin: the approximations become correctly rounded functions.
#pragma once

namespace ge2::ptx {

GE2_INLINE float ex2_approx(float x) { return exp2f(x); }
GE2_INLINE float ex2_approx_ftz(float x) {
    const float y = exp2f(x);
    return y < 1.17549435e-38f ? 0.0f : y;
}
GE2_INLINE float lg2_approx(float x) { return log2f(x); }
GE2_INLINE float rcp_approx(float x) { return 1.0f / x; }
GE2_INLINE float rcp_approx_ftz(float x) {
    const float y = 1.0f / (fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x);
    return fabsf(y) < 1.17549435e-38f ? copysignf(0.0f, y) : y;
}
GE2_INLINE float rsqrt_approx(float x) { return 1.0f / sqrtf(x); }
GE2_INLINE float tanh_approx(float x) { return tanhf(x); }

}  // namespace ge2::ptx
