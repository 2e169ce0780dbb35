// Host twin: ldmatrix.
#pragma once

extern "C" void ge2emu_ldmatrix(unsigned* r, unsigned smem, unsigned tiles, unsigned transposed,
                                const char* file, int line);

namespace ge2::ptx {

GE2_INLINE void ldmatrix_x4(unsigned (&r)[4], unsigned smem, GE2_SITE) {
    ge2emu_ldmatrix(r, smem, 4, 0, file, line);
}
GE2_INLINE void ldmatrix_x4_trans(unsigned (&r)[4], unsigned smem, GE2_SITE) {
    ge2emu_ldmatrix(r, smem, 4, 1, file, line);
}
GE2_INLINE void ldmatrix_x2(unsigned (&r)[2], unsigned smem, GE2_SITE) {
    ge2emu_ldmatrix(r, smem, 2, 0, file, line);
}
GE2_INLINE void ldmatrix_x2_trans(unsigned (&r)[2], unsigned smem, GE2_SITE) {
    ge2emu_ldmatrix(r, smem, 2, 1, file, line);
}

}  // namespace ge2::ptx
