// Host twin: movmatrix.
#pragma once

namespace ge2::ptx {

GE2_INLINE unsigned movmatrix_trans(unsigned value, GE2_SITE) {
    const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4;
    unsigned turned = 0;
    for (int i = 0; i < 2; ++i) {
        const unsigned from = __shfl_sync(0xffffffffu, value, (2 * column + i) * 4 + row / 2, 32,
                                          file, line);
        turned |= (row % 2 ? from >> 16 : from & 0xffffu) << (16 * i);
    }
    return turned;
}

}  // namespace ge2::ptx
