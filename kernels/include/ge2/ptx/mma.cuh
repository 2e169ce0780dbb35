// mma.sync: one warp's d += a * b on tensor cores, a row-major, b column-major, f32 accumulation;
// products of 8-bit integers are summed in 32 bits, modulo 2^32.
#pragma once

namespace ge2::ptx {

// sm_80 and later.
inline void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

inline void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// sm_75 and later.
inline void mma_m16n8k8_f16(float (&d)[4], const unsigned (&a)[2], unsigned b) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

// sm_80 and later; the operands are floats rounded to tf32 (see f32_to_tf32).
inline void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// sm_80 and later; four neighbours along k in a register, the first in the lowest byte.
#define GE2_MMA_K32(A, B) \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." A "." B ".s32 " \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

inline void mma_m16n8k32_s8s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    GE2_MMA_K32("s8", "s8");
}
inline void mma_m16n8k32_s8u8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    GE2_MMA_K32("s8", "u8");
}
inline void mma_m16n8k32_u8s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    GE2_MMA_K32("u8", "s8");
}
inline void mma_m16n8k32_u8u8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    GE2_MMA_K32("u8", "u8");
}

#undef GE2_MMA_K32

}  // namespace ge2::ptx
