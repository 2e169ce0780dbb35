// Host twin: mma.sync of 8-bit floating types.
#pragma once

extern "C" void ge2emu_mma_bytes(void* d, const unsigned* a, const unsigned* b, unsigned type_a,
                                 unsigned type_b, const char* file, int line);

namespace ge2::ptx {

GE2_INLINE void mma_m16n8k32_e4m3e4m3(float (&d)[4], const unsigned (&a)[4],
                                      const unsigned (&b)[2], GE2_SITE) {
    ge2emu_mma_bytes(d, a, b, 2, 2, file, line);
}
GE2_INLINE void mma_m16n8k32_e4m3e5m2(float (&d)[4], const unsigned (&a)[4],
                                      const unsigned (&b)[2], GE2_SITE) {
    ge2emu_mma_bytes(d, a, b, 2, 3, file, line);
}
GE2_INLINE void mma_m16n8k32_e5m2e4m3(float (&d)[4], const unsigned (&a)[4],
                                      const unsigned (&b)[2], GE2_SITE) {
    ge2emu_mma_bytes(d, a, b, 3, 2, file, line);
}
GE2_INLINE void mma_m16n8k32_e5m2e5m2(float (&d)[4], const unsigned (&a)[4],
                                      const unsigned (&b)[2], GE2_SITE) {
    ge2emu_mma_bytes(d, a, b, 3, 3, file, line);
}

}  // namespace ge2::ptx
