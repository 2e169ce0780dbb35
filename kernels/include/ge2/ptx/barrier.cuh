// Named barriers: 1 to 15 (0 is __syncthreads); count is in threads, a multiple of 32.
#pragma once

namespace ge2::ptx {

inline void named_barrier_sync(int id, int count) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}

inline void named_barrier_arrive(int id, int count) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory");
}

}  // namespace ge2::ptx
