// Moves registers between warp groups (sm_90a and later); N is a multiple of 8 from 24 to 256.
// ptxas ignores it unless the kernel has launch bounds of one block per SM.
#pragma once

namespace ge2::ptx {

template <int N>
inline void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N>
inline void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

}  // namespace ge2::ptx
