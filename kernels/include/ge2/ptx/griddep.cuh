// Programmatic dependent launch; without effect before sm_90 and in launches without the attribute.
#pragma once

namespace ge2::ptx {

// Waits until the grids that this one depends on have finished and their writes are visible.
inline void griddep_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The dependent grid may start once every block has said this or has ended.
inline void griddep_launch_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace ge2::ptx
