// Host twin: mbarriers.
#pragma once

#include <ge2/ptx/cluster.cuh>

extern "C" {
void ge2emu_mbarrier_init(unsigned bar, unsigned count);
void ge2emu_mbarrier_arrive(unsigned bar, unsigned count, unsigned bytes);
void ge2emu_mbarrier_wait(unsigned bar, unsigned parity, const char* file, int line);
}

namespace ge2::ptx {

GE2_INLINE void mbarrier_init(unsigned bar, unsigned count) { ge2emu_mbarrier_init(bar, count); }
GE2_INLINE void mbarrier_arrive(unsigned bar) { ge2emu_mbarrier_arrive(bar, 1, 0); }
GE2_INLINE void mbarrier_arrive_expect_tx(unsigned bar, unsigned bytes) {
    ge2emu_mbarrier_arrive(bar, 1, bytes);
}
GE2_INLINE void mbarrier_wait(unsigned bar, unsigned parity, GE2_SITE) {
    ge2emu_mbarrier_wait(bar, parity, file, line);
}
GE2_INLINE void mbarrier_arrive_cluster(unsigned bar, unsigned rank) {
    ge2emu_mbarrier_arrive(ge2emu_map_shared(bar, rank), 1, 0);
}

}  // namespace ge2::ptx
