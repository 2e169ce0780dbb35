// Clusters: rank, barrier and each other's shared memory (sm_90 and later).
#pragma once

namespace ge2::ptx {

inline unsigned cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

inline unsigned cluster_size() {
    unsigned size;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }

inline void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

inline void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

// The address, in the cluster's shared window, of smem's twin in the block of this rank.
inline unsigned map_shared(unsigned smem, unsigned rank) {
    unsigned remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(smem), "r"(rank));
    return remote;
}

inline float load_cluster_f32(unsigned remote) {
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(remote) : "memory");
    return value;
}

inline float4 load_cluster_f32x4(unsigned remote) {
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(remote)
                 : "memory");
    return v;
}

// 16 bytes to another block's shared memory; they arrive when they have been counted at the mbarrier
// `remote_bar` of that block.
inline void store_async_16(unsigned remote, uint4 v, unsigned remote_bar) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%0], {%1, %2, %3, %4}, [%5];"
        ::"r"(remote), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(remote_bar)
        : "memory");
}

inline void store_cluster_f32(unsigned remote, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value) : "memory");
}

}  // namespace ge2::ptx
