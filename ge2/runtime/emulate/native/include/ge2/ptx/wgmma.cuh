// Host twin: wgmma with shared-memory descriptors; accumulators hold NaN until wgmma_wait.
#pragma once

extern "C" {
void ge2emu_wgmma_fence();
void ge2emu_wgmma_commit();
void ge2emu_wgmma_wait(unsigned keep);
void ge2emu_wgmma(void* d, unsigned n, unsigned long long a, unsigned long long b,
                  unsigned accumulate, unsigned type, unsigned trans_a, unsigned trans_b,
                  const char* file, int line);
void ge2emu_wgmma_registers(float* d, unsigned n, const unsigned* a, unsigned long long b,
                            unsigned accumulate, unsigned type, unsigned trans_b,
                            const char* file, int line);
}

namespace ge2::ptx {

GE2_INLINE void wgmma_fence() { ge2emu_wgmma_fence(); }
GE2_INLINE void wgmma_commit() { ge2emu_wgmma_commit(); }
template <int N>
GE2_INLINE void wgmma_wait() {
    ge2emu_wgmma_wait(N);
}

GE2_INLINE unsigned long long wgmma_descriptor(unsigned smem, unsigned leading, unsigned stride) {
    return (1ull << 62) | ((unsigned long long)(stride >> 4) << 32) |
           ((unsigned long long)(leading >> 4) << 16) |
           (unsigned long long)((smem & 0x3ffffu) >> 4);
}

GE2_INLINE unsigned long long wgmma_descriptor_64(unsigned smem, unsigned leading,
                                                  unsigned stride) {
    return (2ull << 62) | ((unsigned long long)(stride >> 4) << 32) |
           ((unsigned long long)(leading >> 4) << 16) |
           (unsigned long long)((smem & 0x3ffffu) >> 4);
}

template <int N, int TRANS_A, int TRANS_B>
GE2_INLINE void wgmma_f16(float (&d)[N / 2], unsigned long long a, unsigned long long b,
                          int accumulate, GE2_SITE) {
    static_assert(N >= 8 && N <= 256 && N % 8 == 0, "wgmma is 8 to 256 wide, in steps of 8");
    ge2emu_wgmma(d, N, a, b, accumulate != 0, 0, TRANS_A, TRANS_B, file, line);
}
template <int N, int TRANS_A, int TRANS_B>
GE2_INLINE void wgmma_bf16(float (&d)[N / 2], unsigned long long a, unsigned long long b,
                           int accumulate, GE2_SITE) {
    static_assert(N >= 8 && N <= 256 && N % 8 == 0, "wgmma is 8 to 256 wide, in steps of 8");
    ge2emu_wgmma(d, N, a, b, accumulate != 0, 1, TRANS_A, TRANS_B, file, line);
}
template <int N, int TRANS_B>
GE2_INLINE void wgmma_f16_registers(float (&d)[N / 2], const unsigned* a, unsigned long long b,
                                    int accumulate, GE2_SITE) {
    static_assert(N >= 8 && N <= 256 && N % 8 == 0, "wgmma is 8 to 256 wide, in steps of 8");
    ge2emu_wgmma_registers(d, N, a, b, accumulate != 0, 0, TRANS_B, file, line);
}
template <int N, int TRANS_B>
GE2_INLINE void wgmma_bf16_registers(float (&d)[N / 2], const unsigned* a, unsigned long long b,
                                     int accumulate, GE2_SITE) {
    static_assert(N >= 8 && N <= 256 && N % 8 == 0, "wgmma is 8 to 256 wide, in steps of 8");
    ge2emu_wgmma_registers(d, N, a, b, accumulate != 0, 1, TRANS_B, file, line);
}
template <int N>
GE2_INLINE void wgmma_tf32(float (&d)[N / 2], unsigned long long a, unsigned long long b,
                           int accumulate, GE2_SITE) {
    static_assert(N >= 8 && N <= 256 && N % 8 == 0, "wgmma is 8 to 256 wide, in steps of 8");
    ge2emu_wgmma(d, N, a, b, accumulate != 0, 2, 0, 0, file, line);
}
template <int N>
GE2_INLINE void wgmma_s8(int (&d)[N / 2], unsigned long long a, unsigned long long b,
                         int accumulate, GE2_SITE) {
    ge2emu_wgmma(d, N, a, b, accumulate != 0, 3, 0, 0, file, line);
}
template <int N>
GE2_INLINE void wgmma_u8(int (&d)[N / 2], unsigned long long a, unsigned long long b,
                         int accumulate, GE2_SITE) {
    ge2emu_wgmma(d, N, a, b, accumulate != 0, 4, 0, 0, file, line);
}
template <int N>
GE2_INLINE void wgmma_e4m3(float (&d)[N / 2], unsigned long long a, unsigned long long b,
                         int accumulate, GE2_SITE) {
    ge2emu_wgmma(d, N, a, b, accumulate != 0, 5, 0, 0, file, line);
}
template <int N>
GE2_INLINE void wgmma_e5m2(float (&d)[N / 2], unsigned long long a, unsigned long long b,
                         int accumulate, GE2_SITE) {
    ge2emu_wgmma(d, N, a, b, accumulate != 0, 6, 0, 0, file, line);
}

}  // namespace ge2::ptx
