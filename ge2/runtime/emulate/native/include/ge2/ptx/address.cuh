// Host twin: 32-bit addresses of the emulated shared window.
#pragma once

extern "C" unsigned ge2emu_smem_address(const void* pointer);

namespace ge2::ptx {

GE2_INLINE unsigned smem_address(const void* pointer) { return ge2emu_smem_address(pointer); }

}  // namespace ge2::ptx
