// Host twin: mma.sync of one warp.
#pragma once

extern "C" void ge2emu_mma(float* d, const unsigned* a, const unsigned* b, unsigned type,
                           const char* file, int line);
// Types of bytes: 0 s8, 1 u8, 2 e4m3, 3 e5m2.
extern "C" void ge2emu_mma_bytes(void* d, const unsigned* a, const unsigned* b, unsigned type_a,
                                 unsigned type_b, const char* file, int line);

namespace ge2::ptx {

GE2_INLINE void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                 GE2_SITE) {
    ge2emu_mma(d, a, b, 0, file, line);
}
GE2_INLINE void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                  GE2_SITE) {
    ge2emu_mma(d, a, b, 1, file, line);
}
GE2_INLINE void mma_m16n8k8_f16(float (&d)[4], const unsigned (&a)[2], unsigned b, GE2_SITE) {
    ge2emu_mma(d, a, &b, 2, file, line);
}
GE2_INLINE void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                 GE2_SITE) {
    ge2emu_mma(d, a, b, 3, file, line);
}
GE2_INLINE void mma_m16n8k32_s8s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                  GE2_SITE) {
    ge2emu_mma_bytes(d, a, b, 0, 0, file, line);
}
GE2_INLINE void mma_m16n8k32_s8u8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                  GE2_SITE) {
    ge2emu_mma_bytes(d, a, b, 0, 1, file, line);
}
GE2_INLINE void mma_m16n8k32_u8s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                  GE2_SITE) {
    ge2emu_mma_bytes(d, a, b, 1, 0, file, line);
}
GE2_INLINE void mma_m16n8k32_u8u8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                  GE2_SITE) {
    ge2emu_mma_bytes(d, a, b, 1, 1, file, line);
}

}  // namespace ge2::ptx
