// The exact gelu and its derivative.
#pragma once

namespace ge2 {

inline float gelu(float z) { return 0.5f * z * (1.f + erff(z * 0.70710678f)); }

inline float gelu_slope(float z) {
    return 0.5f * (1.f + erff(z * 0.70710678f)) + z * 0.39894228f * expf(-0.5f * z * z);
}

}  // namespace ge2
