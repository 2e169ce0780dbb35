// TMA: copies between global and shared memory by the copy engine (sm_90 and later). One thread
// issues. Coordinates are in elements, innermost first; boxes may stick out of the tensor on any
// side: loads fill with zeros (and count the whole box's bytes), stores write what is inside.
#pragma once

namespace ge2::ptx {

// A driver-encoded tensor map, passed inside the kernel's arguments.
struct alignas(64) TensorMap {
    unsigned long long words[16];
};

inline void tma_prefetch(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

inline void tma_load_2d(unsigned smem, const TensorMap* map, int x, int y, unsigned bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(smem),
        "l"(map), "r"(x), "r"(y), "r"(bar)
        : "memory");
}

inline void tma_load_3d(unsigned smem, const TensorMap* map, int x, int y, int z, unsigned bar) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(smem),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(bar)
        : "memory");
}

inline void tma_load_4d(unsigned smem, const TensorMap* map, int x, int y, int z, int w,
                        unsigned bar) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(smem),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(bar)
        : "memory");
}

// The box arrives at the same offset in every block of the cluster whose bit is set in blocks, and
// counts at the barrier of the same offset there.
inline void tma_load_2d_multicast(unsigned smem, const TensorMap* map, int x, int y, unsigned bar,
                                  unsigned short blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(smem),
        "l"(map), "r"(x), "r"(y), "r"(bar), "h"(blocks)
        : "memory");
}

inline void tma_store_2d(const TensorMap* map, unsigned smem, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 ::"l"(map), "r"(x), "r"(y), "r"(smem)
                 : "memory");
}

inline void tma_store_3d(const TensorMap* map, unsigned smem, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];"
        ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(smem)
        : "memory");
}

inline void tma_store_4d(const TensorMap* map, unsigned smem, int x, int y, int z, int w) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];"
        ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(smem)
        : "memory");
}

// bytes is a multiple of 16, both addresses are 16-byte aligned.
inline void bulk_load(unsigned smem, const void* gmem, unsigned bytes, unsigned bar) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(smem), "l"(gmem), "r"(bytes), "r"(bar)
        : "memory");
}

inline void bulk_store(void* gmem, unsigned smem, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(gmem), "r"(smem), "r"(bytes)
                 : "memory");
}

// Closes the group of this thread's stores so far.
inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most N of this thread's newest groups are unfinished.
template <int N>
inline void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

// The same, but only until shared memory has been read, so that it may be written again.
template <int N>
inline void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

}  // namespace ge2::ptx
