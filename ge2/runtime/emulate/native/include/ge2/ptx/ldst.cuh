// Host twin: loads and stores with special cache or ordering behaviour.
#pragma once

namespace ge2::ptx {

// The read-only path; like the others an ordinary access to the detectors.
GE2_INLINE uint4 load_nc_16(const void* pointer) { return *(const uint4*)pointer; }
GE2_INLINE uint4 load_nc_no_allocate_16(const void* pointer) { return *(const uint4*)pointer; }
GE2_INLINE uint4 load_l2_16(const void* pointer) { return *(const uint4*)pointer; }
GE2_INLINE void store_streaming_16(void* pointer, uint4 v) { *(uint4*)pointer = v; }

extern "C" unsigned char* ge2emu_shared_pointer(unsigned smem);

GE2_INLINE uint4 load_shared_16(unsigned smem) { return *(const uint4*)ge2emu_shared_pointer(smem); }
GE2_INLINE uint2 load_shared_8(unsigned smem) { return *(const uint2*)ge2emu_shared_pointer(smem); }
GE2_INLINE void store_shared_16(unsigned smem, uint4 v) {
    *(uint4*)ge2emu_shared_pointer(smem) = v;
}

GE2_INLINE void store_shared_8(unsigned smem, float2 v) {
    *(float2*)ge2emu_shared_pointer(smem) = v;
}
GE2_INLINE void prefetch_l1(const void*) {}
GE2_INLINE void prefetch_l2(const void*) {}

GE2_INLINE unsigned load_acquire(const unsigned* pointer) {
    unsigned value;
    ge2emu_atomic_load(&value, pointer, 4, 1);
    return value;
}
GE2_INLINE void store_release(unsigned* pointer, unsigned value) {
    ge2emu_atomic_store(pointer, &value, 4, 2);
}
GE2_INLINE unsigned long long load_relaxed_64(const unsigned long long* pointer) {
    unsigned long long value;
    ge2emu_atomic_load(&value, pointer, 8, 0);
    return value;
}
GE2_INLINE void store_relaxed_64(unsigned long long* pointer, unsigned long long value) {
    ge2emu_atomic_store(pointer, &value, 8, 0);
}
GE2_INLINE uint4 load_relaxed_128(const uint4* pointer) {
    uint4 value;
    ge2emu_atomic_load(&value, pointer, 16, 0);
    return value;
}
GE2_INLINE void store_relaxed_128(uint4* pointer, uint4 v) {
    ge2emu_atomic_store(pointer, &v, 16, 0);
}
GE2_INLINE unsigned atomic_add_acq_rel(unsigned* pointer, unsigned value) {
    return ge2emu_atomic_u32(pointer, 0, value, 0, 3);
}

}  // namespace ge2::ptx
