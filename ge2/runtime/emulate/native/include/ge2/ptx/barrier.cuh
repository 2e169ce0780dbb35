// Host twin: named barriers.
#pragma once

namespace ge2::ptx {

GE2_INLINE void named_barrier_sync(int id, int count, GE2_SITE) {
    ge2emu_named_barrier((unsigned)id, (unsigned)count, 1, file, line);
}
GE2_INLINE void named_barrier_arrive(int id, int count, GE2_SITE) {
    ge2emu_named_barrier((unsigned)id, (unsigned)count, 0, file, line);
}

}  // namespace ge2::ptx
