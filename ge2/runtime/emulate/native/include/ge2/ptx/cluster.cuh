// Host twin: clusters and each other's shared memory.
#pragma once

extern "C" {
void ge2emu_cluster_arrive();
void ge2emu_cluster_wait(const char* file, int line);
unsigned ge2emu_map_shared(unsigned smem, unsigned rank);
void ge2emu_cluster_load(unsigned remote, void* to, unsigned bytes);
void ge2emu_cluster_store(unsigned remote, const void* from, unsigned bytes);
void ge2emu_store_async(unsigned remote, const void* from, unsigned bytes, unsigned remote_bar);
}

namespace ge2::ptx {

GE2_INLINE unsigned cluster_rank() { return ge2emu_special(4, 0); }
GE2_INLINE unsigned cluster_size() { return ge2emu_special(4, 1); }
GE2_INLINE void cluster_arrive() { ge2emu_cluster_arrive(); }
GE2_INLINE void cluster_wait(GE2_SITE) { ge2emu_cluster_wait(file, line); }
GE2_INLINE void cluster_sync(GE2_SITE) {
    ge2emu_cluster_arrive();
    ge2emu_cluster_wait(file, line);
}
GE2_INLINE unsigned map_shared(unsigned smem, unsigned rank) {
    return ge2emu_map_shared(smem, rank);
}
GE2_INLINE float load_cluster_f32(unsigned remote) {
    float value;
    ge2emu_cluster_load(remote, &value, 4);
    return value;
}
GE2_INLINE float4 load_cluster_f32x4(unsigned remote) {
    float4 value;
    ge2emu_cluster_load(remote, &value, 16);
    return value;
}
GE2_INLINE void store_async_16(unsigned remote, uint4 v, unsigned remote_bar) {
    ge2emu_store_async(remote, &v, 16, remote_bar);
}
GE2_INLINE void store_cluster_f32(unsigned remote, float value) {
    ge2emu_cluster_store(remote, &value, 4);
}

}  // namespace ge2::ptx
