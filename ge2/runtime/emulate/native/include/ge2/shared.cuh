// Host twin: dynamic shared memory of the emulated block.
#pragma once

#include <ge2/ptx/address.cuh>

extern "C" unsigned char* ge2emu_shared_memory();

namespace ge2 {

GE2_INLINE unsigned char* shared_memory() { return ge2emu_shared_memory(); }

}  // namespace ge2
