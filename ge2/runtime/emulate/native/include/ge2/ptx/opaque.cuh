// Host twin: nothing needs hiding from the host compiler.
#pragma once

namespace ge2::ptx {

GE2_INLINE int opaque(int value) { return value; }

}  // namespace ge2::ptx
