// stmatrix: mma fragments into 8x8 tiles of 16-bit elements in shared memory (sm_90 and later).
// Lane 8i+j gives the address of row j of tile i.
#pragma once

namespace ge2::ptx {

inline void stmatrix_x4(unsigned smem, const unsigned (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(smem), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

inline void stmatrix_x4_trans(unsigned smem, const unsigned (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(smem), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

inline void stmatrix_x2(unsigned smem, const unsigned (&r)[2]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                 ::"r"(smem), "r"(r[0]), "r"(r[1])
                 : "memory");
}

}  // namespace ge2::ptx
