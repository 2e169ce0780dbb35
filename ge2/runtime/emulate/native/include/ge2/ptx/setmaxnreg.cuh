// Host twin: register moves between warp groups have no effect on the host.
#pragma once

namespace ge2::ptx {

template <int N>
GE2_INLINE void setmaxnreg_inc() {
    static_assert(N >= 24 && N <= 256 && N % 8 == 0, "registers: a multiple of 8 from 24 to 256");
}
template <int N>
GE2_INLINE void setmaxnreg_dec() {
    static_assert(N >= 24 && N <= 256 && N % 8 == 0, "registers: a multiple of 8 from 24 to 256");
}

}  // namespace ge2::ptx
