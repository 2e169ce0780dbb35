// Arithmetic on two 16-bit floats in a register; each result is rounded once, to nearest even.
#pragma once

namespace ge2::ptx {

// a * b + c.
inline unsigned fma_f16x2(unsigned a, unsigned b, unsigned c) {
    unsigned d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

// The same for bf16 (sm_80 and later).
inline unsigned fma_bf16x2(unsigned a, unsigned b, unsigned c) {
    unsigned d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

}  // namespace ge2::ptx
