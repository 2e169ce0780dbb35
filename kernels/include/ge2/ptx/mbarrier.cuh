// mbarrier: arrival counts and transfer bytes in shared memory (sm_90 and later).
// bar is the shared address of 8 bytes, 8-byte aligned.
#pragma once

namespace ge2::ptx {

inline void mbarrier_init(unsigned bar, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

inline void mbarrier_arrive(unsigned bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

// Arrives and announces bytes that asynchronous copies will deliver in this phase.
inline void mbarrier_arrive_expect_tx(unsigned bar, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}

// Waits until the phase of this parity has completed (0 for the first phase).
inline void mbarrier_wait(unsigned bar, unsigned parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "retry:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra retry;\n"
        "finished:\n"
        "}" ::"r"(bar),
        "r"(parity)
        : "memory");
}

// Arrives at the barrier of the same offset in another block of the cluster. Without a release
// qualifier on purpose: the cluster-scope release costs a device-wide memory barrier per arrival.
inline void mbarrier_arrive_cluster(unsigned bar, unsigned rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(bar),
        "r"(rank)
        : "memory");
}

}  // namespace ge2::ptx
