// The larger and the smaller of two floats; NaN if one of them is.
#pragma once

namespace ge2::ptx {

inline float max_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
#else
    return a > b || a != a ? a : b;
#endif
}

inline float min_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
#else
    return a < b || a != a ? a : b;
#endif
}

}  // namespace ge2::ptx
