// Hides a value from the compiler, so that what is computed from it is computed again, near its use,
// instead of waiting in registers.
#pragma once

namespace ge2::ptx {

inline int opaque(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

// Registers that an asynchronous instruction has written or read: what follows stays behind its wait.
template <int N>
inline void opaque(float (&values)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

template <int N>
inline void opaque(unsigned (&values)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

}  // namespace ge2::ptx
