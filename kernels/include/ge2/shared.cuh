// The one declaration of dynamic shared memory.
#pragma once

#include <ge2/ptx/address.cuh>

namespace ge2 {

// Dynamic shared memory, aligned to 1024 bytes (what a 128-byte swizzled tile needs). Nothing
// promises that for the base, so it is rounded up: a launch asks for 1024 bytes more than are used.
inline unsigned char* shared_memory() {
    extern __shared__ __align__(16) unsigned char ge2_dynamic_shared[];
    const unsigned base = ptx::smem_address(ge2_dynamic_shared);
    return ge2_dynamic_shared + ((1024u - (base & 1023u)) & 1023u);
}

}  // namespace ge2
