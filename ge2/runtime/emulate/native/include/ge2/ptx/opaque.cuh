// Host twin: nothing needs hiding from the host compiler.
#pragma once

namespace ge2::ptx {

GE2_INLINE int opaque(int value) { return value; }
template <int N>
GE2_INLINE void opaque(float (&)[N]) {}
template <int N>
GE2_INLINE void opaque(unsigned (&)[N]) {}

}  // namespace ge2::ptx
