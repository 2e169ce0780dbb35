// Host twin: cp.async; the bytes land at the wait.
#pragma once

extern "C" {
void ge2emu_cp_async(unsigned smem, const void* gmem, unsigned bytes, unsigned src_bytes);
void ge2emu_cp_async_commit();
void ge2emu_cp_async_wait(unsigned keep);
}

namespace ge2::ptx {

GE2_INLINE void cp_async_16(unsigned smem, const void* gmem, int src_bytes) {
    ge2emu_cp_async(smem, gmem, 16, (unsigned)src_bytes);
}
GE2_INLINE void cp_async_8(unsigned smem, const void* gmem, int src_bytes) {
    ge2emu_cp_async(smem, gmem, 8, (unsigned)src_bytes);
}
GE2_INLINE void cp_async_4(unsigned smem, const void* gmem, int src_bytes) {
    ge2emu_cp_async(smem, gmem, 4, (unsigned)src_bytes);
}
GE2_INLINE void cp_async_commit() { ge2emu_cp_async_commit(); }
template <int N>
GE2_INLINE void cp_async_wait() {
    ge2emu_cp_async_wait(N);
}

}  // namespace ge2::ptx
