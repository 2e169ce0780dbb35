// Fences between the ordinary and the asynchronous way to memory (sm_90 and later).
#pragma once

namespace ge2::ptx {

// This thread's shared-memory writes become visible to TMA stores and wgmma issued after a barrier.
inline void fence_proxy_async_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Initialised mbarriers become visible to the copy engine and to the cluster.
inline void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace ge2::ptx
