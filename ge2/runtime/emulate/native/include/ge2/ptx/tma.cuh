// Host twin: tensor and bulk copies. Loads land when nobody can go on without them, stores at bulk_wait.
#pragma once

extern "C" {
void ge2emu_tma_load(unsigned smem, const void* map, const int* at, unsigned rank, unsigned bar,
                     unsigned blocks);
void ge2emu_tma_store(const void* map, unsigned smem, const int* at, unsigned rank);
void ge2emu_bulk_load(unsigned smem, const void* gmem, unsigned bytes, unsigned bar);
void ge2emu_bulk_store(void* gmem, unsigned smem, unsigned bytes);
void ge2emu_bulk_commit();
void ge2emu_bulk_wait(unsigned keep, unsigned read_only);
}

namespace ge2::ptx {

struct alignas(64) TensorMap {
    unsigned long long words[16];
};

GE2_INLINE void tma_prefetch(const TensorMap*) {}

GE2_INLINE void tma_load_2d(unsigned smem, const TensorMap* map, int x, int y, unsigned bar) {
    const int at[2] = {x, y};
    ge2emu_tma_load(smem, map, at, 2, bar, 0);
}
GE2_INLINE void tma_load_3d(unsigned smem, const TensorMap* map, int x, int y, int z,
                            unsigned bar) {
    const int at[3] = {x, y, z};
    ge2emu_tma_load(smem, map, at, 3, bar, 0);
}
GE2_INLINE void tma_load_4d(unsigned smem, const TensorMap* map, int x, int y, int z, int w,
                            unsigned bar) {
    const int at[4] = {x, y, z, w};
    ge2emu_tma_load(smem, map, at, 4, bar, 0);
}
GE2_INLINE void tma_load_2d_multicast(unsigned smem, const TensorMap* map, int x, int y,
                                      unsigned bar, unsigned short blocks) {
    const int at[2] = {x, y};
    ge2emu_tma_load(smem, map, at, 2, bar, 0x10000u | blocks);
}
GE2_INLINE void tma_store_2d(const TensorMap* map, unsigned smem, int x, int y) {
    const int at[2] = {x, y};
    ge2emu_tma_store(map, smem, at, 2);
}
GE2_INLINE void tma_store_3d(const TensorMap* map, unsigned smem, int x, int y, int z) {
    const int at[3] = {x, y, z};
    ge2emu_tma_store(map, smem, at, 3);
}
GE2_INLINE void tma_store_4d(const TensorMap* map, unsigned smem, int x, int y, int z, int w) {
    const int at[4] = {x, y, z, w};
    ge2emu_tma_store(map, smem, at, 4);
}
GE2_INLINE void bulk_load(unsigned smem, const void* gmem, unsigned bytes, unsigned bar) {
    ge2emu_bulk_load(smem, gmem, bytes, bar);
}
GE2_INLINE void bulk_store(void* gmem, unsigned smem, unsigned bytes) {
    ge2emu_bulk_store(gmem, smem, bytes);
}
GE2_INLINE void bulk_commit() { ge2emu_bulk_commit(); }
template <int N>
GE2_INLINE void bulk_wait() {
    ge2emu_bulk_wait(N, 0);
}
template <int N>
GE2_INLINE void bulk_wait_read() {
    ge2emu_bulk_wait(N, 1);
}

}  // namespace ge2::ptx
