// cp.async: copies from global to shared memory that complete later (sm_80 and later).
// src_bytes of the source are read, the rest of the destination is filled with zeros; with 0 the
// source is not read. Both addresses are aligned to the copy's size.
#pragma once

namespace ge2::ptx {

inline void cp_async_16(unsigned smem, const void* gmem, int src_bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(smem), "l"(gmem), "r"(src_bytes)
                 : "memory");
}

inline void cp_async_8(unsigned smem, const void* gmem, int src_bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 ::"r"(smem), "l"(gmem), "r"(src_bytes)
                 : "memory");
}

inline void cp_async_4(unsigned smem, const void* gmem, int src_bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 ::"r"(smem), "l"(gmem), "r"(src_bytes)
                 : "memory");
}

inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most N of this thread's newest groups are unfinished.
template <int N>
inline void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace ge2::ptx
