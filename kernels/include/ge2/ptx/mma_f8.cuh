// mma.sync of 8-bit floating types (sm_89 and later): d += a * b for 16 x 8 x 32; four neighbours
// along k in a register, the first in the lowest byte. The instruction keeps fewer bits of its sums
// than a float has: add them up elsewhere every few of k.
#pragma once

namespace ge2::ptx {

#define GE2_MMA_F8(A, B) \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." A "." B ".f32 " \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

inline void mma_m16n8k32_e4m3e4m3(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    GE2_MMA_F8("e4m3", "e4m3");
}
inline void mma_m16n8k32_e4m3e5m2(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    GE2_MMA_F8("e4m3", "e5m2");
}
inline void mma_m16n8k32_e5m2e4m3(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    GE2_MMA_F8("e5m2", "e4m3");
}
inline void mma_m16n8k32_e5m2e5m2(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    GE2_MMA_F8("e5m2", "e5m2");
}

#undef GE2_MMA_F8

}  // namespace ge2::ptx
