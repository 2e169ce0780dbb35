// movmatrix: an 8x8 tile of 16-bit elements, spread over a warp as mma fragments are, transposed
// without shared memory (sm_75 and later). Lane 4i+j holds elements 2j and 2j+1 of row i.
#pragma once

namespace ge2::ptx {

inline unsigned movmatrix_trans(unsigned value) {
    unsigned turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(value));
    return turned;
}

}  // namespace ge2::ptx
