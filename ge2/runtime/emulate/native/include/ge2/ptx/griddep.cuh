// Host twin: programmatic dependent launch. Launches run one after another; a launch that may
// overlap the one before it (record.pdl) must not touch what that one has written before the wait.
#pragma once

extern "C" void ge2emu_griddep_wait();

namespace ge2::ptx {

GE2_INLINE void griddep_wait() { ge2emu_griddep_wait(); }
GE2_INLINE void griddep_launch_dependents() {}

}  // namespace ge2::ptx
