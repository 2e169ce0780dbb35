// Host twin: stmatrix.
#pragma once

extern "C" void ge2emu_stmatrix(unsigned smem, const unsigned* r, unsigned tiles,
                                unsigned transposed, const char* file, int line);

namespace ge2::ptx {

GE2_INLINE void stmatrix_x4(unsigned smem, const unsigned (&r)[4], GE2_SITE) {
    ge2emu_stmatrix(smem, r, 4, 0, file, line);
}
GE2_INLINE void stmatrix_x4_trans(unsigned smem, const unsigned (&r)[4], GE2_SITE) {
    ge2emu_stmatrix(smem, r, 4, 1, file, line);
}
GE2_INLINE void stmatrix_x2(unsigned smem, const unsigned (&r)[2], GE2_SITE) {
    ge2emu_stmatrix(smem, r, 2, 0, file, line);
}

}  // namespace ge2::ptx
