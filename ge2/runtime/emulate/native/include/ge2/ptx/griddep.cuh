// Host twin: programmatic dependent launch; launches run one after another, so nothing waits.
#pragma once

namespace ge2::ptx {

GE2_INLINE void griddep_wait() {}
GE2_INLINE void griddep_launch_dependents() {}

}  // namespace ge2::ptx
