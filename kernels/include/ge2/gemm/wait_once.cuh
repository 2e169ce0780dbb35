// The wait of a kernel that fetches its weights while the grid before it still runs.
#pragma once

#include <ge2/ptx/griddep.cuh>

namespace ge2 {

// Waits for the grid before, the first time: everything but the weights may still be written.
inline void wait_once(bool& waits) {
    if (waits) ptx::griddep_wait();
    waits = false;
}

}  // namespace ge2
