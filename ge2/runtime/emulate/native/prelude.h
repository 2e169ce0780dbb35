// Stands in for what NVRTC predefines; included before every kernel that is built for the host.
#pragma once

#include <stddef.h>

#define GE2_EMULATE 1
#define __CUDACC__ 1
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __grid_constant__
#define __managed__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) alignas(n)
#define __cluster_dims__(...)
#define __maxnreg__(n)
#define GE2_INLINE inline __attribute__((always_inline))

struct alignas(2) char2 { signed char x, y; };
inline char2 make_char2(signed char x, signed char y) { return {x, y}; }
struct alignas(4) char4 { signed char x, y, z, w; };
inline char4 make_char4(signed char x, signed char y, signed char z, signed char w) { return {x, y, z, w}; }
struct alignas(2) uchar2 { unsigned char x, y; };
inline uchar2 make_uchar2(unsigned char x, unsigned char y) { return {x, y}; }
struct alignas(4) uchar4 { unsigned char x, y, z, w; };
inline uchar4 make_uchar4(unsigned char x, unsigned char y, unsigned char z, unsigned char w) { return {x, y, z, w}; }
struct alignas(4) short2 { short x, y; };
inline short2 make_short2(short x, short y) { return {x, y}; }
struct alignas(8) short4 { short x, y, z, w; };
inline short4 make_short4(short x, short y, short z, short w) { return {x, y, z, w}; }
struct alignas(4) ushort2 { unsigned short x, y; };
inline ushort2 make_ushort2(unsigned short x, unsigned short y) { return {x, y}; }
struct alignas(8) ushort4 { unsigned short x, y, z, w; };
inline ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z, unsigned short w) { return {x, y, z, w}; }
struct alignas(8) int2 { int x, y; };
inline int2 make_int2(int x, int y) { return {x, y}; }
struct int3 { int x, y, z; };
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
struct alignas(16) int4 { int x, y, z, w; };
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
struct alignas(8) uint2 { unsigned x, y; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
struct uint3 { unsigned x, y, z; };
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
struct alignas(16) longlong2 { long long x, y; };
inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
struct alignas(16) ulonglong2 { unsigned long long x, y; };
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
struct alignas(8) float2 { float x, y; };
inline float2 make_float2(float x, float y) { return {x, y}; }
struct float3 { float x, y, z; };
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
struct alignas(16) float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct alignas(16) double2 { double x, y; };
inline double2 make_double2(double x, double y) { return {x, y}; }

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

extern "C" {
unsigned ge2emu_special(unsigned which, unsigned axis) __attribute__((const));
void ge2emu_syncthreads(const char* file, int line);
void ge2emu_named_barrier(unsigned id, unsigned count, unsigned wait, const char* file, int line);
void ge2emu_syncwarp(unsigned mask, const char* file, int line);
unsigned ge2emu_activemask();
unsigned long long ge2emu_shuffle(unsigned mask, unsigned long long value, unsigned lane,
                                  unsigned width, unsigned mode, const char* file, int line);
unsigned ge2emu_vote(unsigned mask, unsigned predicate, unsigned long long value, unsigned mode,
                     const char* file, int line);
void ge2emu_threadfence();
void ge2emu_atomic_load(void* to, const void* p, unsigned n, unsigned order);
void ge2emu_atomic_store(void* p, const void* from, unsigned n, unsigned order);
int ge2emu_atomic_i32(void* p, unsigned op, int v, int other, unsigned order);
unsigned ge2emu_atomic_u32(void* p, unsigned op, unsigned v, unsigned other, unsigned order);
unsigned long long ge2emu_atomic_u64(void* p, unsigned op, unsigned long long v,
                                     unsigned long long other, unsigned order);
float ge2emu_atomic_f32(void* p, unsigned op, float v, float other, unsigned order);
double ge2emu_atomic_f64(void* p, unsigned op, double v, double other, unsigned order);
void ge2emu_trap(const char* what);
}

GE2_INLINE uint3 ge2emu_index(unsigned which) {
  return {ge2emu_special(which, 0), ge2emu_special(which, 1), ge2emu_special(which, 2)};
}
GE2_INLINE dim3 ge2emu_extent(unsigned which) {
  return {ge2emu_special(which, 0), ge2emu_special(which, 1), ge2emu_special(which, 2)};
}
#define threadIdx ge2emu_index(0)
#define blockIdx ge2emu_index(1)
#define blockDim ge2emu_extent(2)
#define gridDim ge2emu_extent(3)
#define warpSize 32

// ---- barriers, shuffles, votes -----------------------------------------------------------------
// The call site is part of each rendezvous, so it is a defaulted argument.

#define GE2_SITE const char* file = __builtin_FILE(), int line = __builtin_LINE()

GE2_INLINE void ge2emu_barrier_here(GE2_SITE) { ge2emu_syncthreads(file, line); }
#define __syncthreads() ge2emu_barrier_here()
GE2_INLINE void __syncwarp(unsigned mask = 0xffffffffu, GE2_SITE) {
  ge2emu_syncwarp(mask, file, line);
}
GE2_INLINE unsigned __activemask() { return ge2emu_activemask(); }

template <class T>
GE2_INLINE unsigned long long ge2emu_bits(T v) {
  static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &v, sizeof(T));
  return bits;
}
template <class T>
GE2_INLINE T ge2emu_shuffled(unsigned long long bits) {
  T v;
  __builtin_memcpy(&v, &bits, sizeof(T));
  return v;
}
#define GE2_SHUFFLE(NAME, ARG, MODE)                                                          \
  template <class T>                                                                          \
  GE2_INLINE T NAME(unsigned mask, T v, ARG lane, int width = 32, GE2_SITE) {                 \
    return ge2emu_shuffled<T>(ge2emu_shuffle(mask, ge2emu_bits(v), (unsigned)lane,            \
                                             (unsigned)width, MODE, file, line));             \
  }
GE2_SHUFFLE(__shfl_sync, int, 0)
GE2_SHUFFLE(__shfl_up_sync, unsigned, 1)
GE2_SHUFFLE(__shfl_down_sync, unsigned, 2)
GE2_SHUFFLE(__shfl_xor_sync, int, 3)
#undef GE2_SHUFFLE

GE2_INLINE unsigned __ballot_sync(unsigned mask, int p, GE2_SITE) {
  return ge2emu_vote(mask, p != 0, 0, 0, file, line);
}
GE2_INLINE int __any_sync(unsigned mask, int p, GE2_SITE) {
  return (int)ge2emu_vote(mask, p != 0, 0, 1, file, line);
}
GE2_INLINE int __all_sync(unsigned mask, int p, GE2_SITE) {
  return (int)ge2emu_vote(mask, p != 0, 0, 2, file, line);
}
template <class T>
GE2_INLINE unsigned __match_any_sync(unsigned mask, T v, GE2_SITE) {
  return ge2emu_vote(mask, 0, ge2emu_bits(v), 3, file, line);
}
#define GE2_REDUCE(NAME, T, MODE)                                    \
  GE2_INLINE T NAME(unsigned mask, T v, GE2_SITE) {                  \
    return (T)ge2emu_vote(mask, 0, (unsigned)v, MODE, file, line);   \
  }
GE2_REDUCE(__reduce_add_sync, int, 4)
GE2_REDUCE(__reduce_add_sync, unsigned, 4)
GE2_REDUCE(__reduce_min_sync, unsigned, 5)
GE2_REDUCE(__reduce_max_sync, unsigned, 6)
GE2_REDUCE(__reduce_and_sync, unsigned, 7)
GE2_REDUCE(__reduce_or_sync, unsigned, 8)
GE2_REDUCE(__reduce_xor_sync, unsigned, 9)
GE2_REDUCE(__reduce_min_sync, int, 10)
GE2_REDUCE(__reduce_max_sync, int, 11)
#undef GE2_REDUCE

// ---- atomics and fences ------------------------------------------------------------------------

#define GE2_ATOMIC(T, NAME)                                                                    \
  GE2_INLINE T atomicAdd(T* p, T v) { return (T)ge2emu_atomic_##NAME(p, 0, v, 0, 0); }       \
  GE2_INLINE T atomicExch(T* p, T v) { return (T)ge2emu_atomic_##NAME(p, 1, v, 0, 0); }      \
  GE2_INLINE T atomicMax(T* p, T v) { return (T)ge2emu_atomic_##NAME(p, 3, v, 0, 0); }       \
  GE2_INLINE T atomicMin(T* p, T v) { return (T)ge2emu_atomic_##NAME(p, 4, v, 0, 0); }
#define GE2_ATOMIC_BITS(T, NAME)                                                               \
  GE2_ATOMIC(T, NAME)                                                                          \
  GE2_INLINE T atomicCAS(T* p, T old, T v) { return ge2emu_atomic_##NAME(p, 2, v, old, 0); }   \
  GE2_INLINE T atomicAnd(T* p, T v) { return ge2emu_atomic_##NAME(p, 5, v, 0, 0); }          \
  GE2_INLINE T atomicOr(T* p, T v) { return ge2emu_atomic_##NAME(p, 6, v, 0, 0); }           \
  GE2_INLINE T atomicXor(T* p, T v) { return ge2emu_atomic_##NAME(p, 7, v, 0, 0); }
GE2_ATOMIC_BITS(int, i32)
GE2_ATOMIC_BITS(unsigned, u32)
GE2_ATOMIC_BITS(unsigned long long, u64)
GE2_INLINE float atomicAdd(float* p, float v) { return ge2emu_atomic_f32(p, 0, v, 0, 0); }
GE2_INLINE float atomicExch(float* p, float v) { return ge2emu_atomic_f32(p, 1, v, 0, 0); }
GE2_INLINE double atomicAdd(double* p, double v) { return ge2emu_atomic_f64(p, 0, v, 0, 0); }
GE2_INLINE int atomicSub(int* p, int v) { return ge2emu_atomic_i32(p, 0, -v, 0, 0); }
GE2_INLINE unsigned atomicSub(unsigned* p, unsigned v) {
  return ge2emu_atomic_u32(p, 0, 0u - v, 0, 0);
}
GE2_INLINE unsigned atomicInc(unsigned* p, unsigned v) { return ge2emu_atomic_u32(p, 8, v, 0, 0); }
GE2_INLINE unsigned atomicDec(unsigned* p, unsigned v) { return ge2emu_atomic_u32(p, 9, v, 0, 0); }
#undef GE2_ATOMIC
#undef GE2_ATOMIC_BITS

GE2_INLINE void __threadfence() { ge2emu_threadfence(); }
GE2_INLINE void __threadfence_system() { ge2emu_threadfence(); }
GE2_INLINE void __threadfence_block() { ge2emu_threadfence(); }
GE2_INLINE void __trap() { ge2emu_trap("__trap"); }
GE2_INLINE void __nanosleep(unsigned) {}
GE2_INLINE void ge2emu_assume(bool) {}
#define __builtin_assume(x) ge2emu_assume(x)

#define GE2_CACHED_LOAD(NAME) \
  template <class T>          \
  GE2_INLINE T NAME(const T* p) { return *p; }
GE2_CACHED_LOAD(__ldg)
GE2_CACHED_LOAD(__ldcg)
GE2_CACHED_LOAD(__ldca)
GE2_CACHED_LOAD(__ldcs)
GE2_CACHED_LOAD(__ldlu)
GE2_CACHED_LOAD(__ldcv)
#undef GE2_CACHED_LOAD
#define GE2_CACHED_STORE(NAME) \
  template <class T>           \
  GE2_INLINE void NAME(T* p, T v) { *p = v; }
GE2_CACHED_STORE(__stwb)
GE2_CACHED_STORE(__stcg)
GE2_CACHED_STORE(__stcs)
GE2_CACHED_STORE(__stwt)
#undef GE2_CACHED_STORE

#include "ge2emu_math.h"
