// For kernels that have nothing to prepare while the grid before them still runs.
#pragma once

#include <ge2/ptx/griddep.cuh>

namespace ge2 {

// Lets the next grid start early, then waits for the one before, whose data may not be touched until
// then. That one has waited in its turn: when it ends, all grids before it have ended, too.
inline void follow_grid() {
    ptx::griddep_launch_dependents();
    ptx::griddep_wait();
}

}  // namespace ge2
