// Loads and stores whose cache or ordering behaviour plain C++ cannot say.
#pragma once

namespace ge2::ptx {

// 16 bytes through the read-only path; nobody may write them while the kernel runs.
inline uint4 load_nc_16(const void* pointer) {
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(pointer));
    return v;
}

// The same without keeping the line in L1: for data that is read once.
inline uint4 load_nc_no_allocate_16(const void* pointer) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(pointer));
    return v;
}

// 16 bytes past the first-level cache: what other blocks wrote during this launch.
inline uint4 load_l2_16(const void* pointer) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(pointer)
                 : "memory");
    return v;
}

// 16 bytes to global memory, evicted first: for data that is not read again soon.
inline void store_streaming_16(void* pointer, uint4 v) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(pointer), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

// 16 bytes of shared memory by address (see smem_address).
inline uint4 load_shared_16(unsigned smem) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(smem)
                 : "memory");
    return v;
}

inline uint2 load_shared_8(unsigned smem) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(smem) : "memory");
    return v;
}

inline void store_shared_16(unsigned smem, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

inline void store_shared_8(unsigned smem, float2 v) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(smem), "f"(v.x), "f"(v.y) : "memory");
}

// Asks for a line without waiting for it.
inline void prefetch_l1(const void* pointer) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(pointer));
}

inline void prefetch_l2(const void* pointer) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(pointer));
}

// A flag in global memory, ordered against the other accesses of this thread, device wide.
inline unsigned load_acquire(const unsigned* pointer) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(pointer) : "memory");
    return value;
}

inline void store_release(unsigned* pointer, unsigned value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(pointer), "r"(value) : "memory");
}

// 8 bytes that other blocks see and poll as one, without ordering other accesses.
inline unsigned long long load_relaxed_64(const unsigned long long* pointer) {
    unsigned long long value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(pointer) : "memory");
    return value;
}

inline void store_relaxed_64(unsigned long long* pointer, unsigned long long value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(pointer), "l"(value) : "memory");
}

// The same for 16 bytes, aligned to as many.
inline uint4 load_relaxed_128(const uint4* pointer) {
    unsigned long long low, high;
    asm volatile(
        "{\n"
        ".reg .b128 both;\n"
        "ld.relaxed.gpu.global.b128 both, [%2];\n"
        "mov.b128 {%0, %1}, both;\n"
        "}" : "=l"(low), "=l"(high)
        : "l"(pointer)
        : "memory");
    return uint4{static_cast<unsigned>(low), static_cast<unsigned>(low >> 32),
                 static_cast<unsigned>(high), static_cast<unsigned>(high >> 32)};
}

inline void store_relaxed_128(uint4* pointer, uint4 v) {
    const unsigned long long low = static_cast<unsigned long long>(v.y) << 32 | v.x;
    const unsigned long long high = static_cast<unsigned long long>(v.w) << 32 | v.z;
    asm volatile(
        "{\n"
        ".reg .b128 both;\n"
        "mov.b128 both, {%1, %2};\n"
        "st.relaxed.gpu.global.b128 [%0], both;\n"
        "}" ::"l"(pointer),
        "l"(low), "l"(high)
        : "memory");
}

// Returns the old value.
inline unsigned atomic_add_acq_rel(unsigned* pointer, unsigned value) {
    unsigned old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(pointer), "r"(value)
                 : "memory");
    return old;
}

}  // namespace ge2::ptx
