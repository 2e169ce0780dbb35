// Addresses of the shared window.
#pragma once

namespace ge2::ptx {

// The 32-bit shared-memory address of a generic pointer into shared memory.
inline unsigned smem_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

}  // namespace ge2::ptx
