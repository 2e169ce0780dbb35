// Host twin: proxy fences.
#pragma once

extern "C" {
void ge2emu_fence_async();
void ge2emu_fence_mbarrier_init();
}

namespace ge2::ptx {

GE2_INLINE void fence_proxy_async_shared() { ge2emu_fence_async(); }
GE2_INLINE void fence_mbarrier_init() { ge2emu_fence_mbarrier_init(); }

}  // namespace ge2::ptx
