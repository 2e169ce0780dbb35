// Host twin: maxima and minima that NaN passes through.
#pragma once

namespace ge2::ptx {

GE2_INLINE float max_nan(float a, float b) { return a > b || a != a ? a : b; }
GE2_INLINE float min_nan(float a, float b) { return a < b || a != a ? a : b; }

}  // namespace ge2::ptx
