// Hides a value from the compiler, so that what is computed from it is computed again, near its use,
// instead of waiting in registers.
#pragma once

namespace ge2::ptx {

inline int opaque(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

}  // namespace ge2::ptx
