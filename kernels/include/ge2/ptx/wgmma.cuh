// wgmma: one warp group's (64 x N) += (64 x 16) * (16 x N) on tensor cores, operands in shared
// memory by descriptor, or the first in registers, f32 accumulation (sm_90a). The result is in the
// registers only after wgmma_wait; until then neither they nor an operand's may be touched.
#pragma once

namespace ge2::ptx {

// Before the first wgmma, and after registers that one accumulates into were written otherwise.
inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most N of the newest groups are unfinished.
template <int N>
inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// The descriptor of a tile in 128-byte swizzle at shared address smem (the tile starts at a
// multiple of 1024 bytes; smem may lie inside it). Offsets are in bytes.
// A tile whose rows run along K: leading is ignored, stride 1024 = 8 rows, smem moves 32 for each
// 16 of K. A tile whose rows run along M or N (64 of them): leading = the next 64 of M or N, stride
// 1024 = 8 of K, smem moves 2048 for each 16 of K.
// The mask drops the block's rank, which shared addresses carry in clusters.
inline unsigned long long wgmma_descriptor(unsigned smem, unsigned leading, unsigned stride) {
    return (1ull << 62) | (static_cast<unsigned long long>(stride >> 4) << 32) |
           (static_cast<unsigned long long>(leading >> 4) << 16) |
           static_cast<unsigned long long>((smem & 0x3ffffu) >> 4);
}

// The same in 64-byte swizzle: rows of 64 bytes, so stride is 512, and along M or N 32 of them are
// together and smem moves 1024 for each 16 of K.
inline unsigned long long wgmma_descriptor_64(unsigned smem, unsigned leading, unsigned stride) {
    return (2ull << 62) | (static_cast<unsigned long long>(stride >> 4) << 32) |
           (static_cast<unsigned long long>(leading >> 4) << 16) |
           static_cast<unsigned long long>((smem & 0x3ffffu) >> 4);
}

// Operand lists: accumulator registers by sixteen.
#define GE2_NAMES_0 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define GE2_NAMES_1 \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GE2_NAMES_2 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define GE2_NAMES_3 \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GE2_NAMES_4 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define GE2_NAMES_5 \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define GE2_NAMES_6 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define GE2_NAMES_7 \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define GE2_REGS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define GE2_REGS_16(i) GE2_REGS_4(i), GE2_REGS_4(i + 4), GE2_REGS_4(i + 8), GE2_REGS_4(i + 12)
#define GE2_REGS_64(i) \
    GE2_REGS_16(i), GE2_REGS_16(i + 16), GE2_REGS_16(i + 32), GE2_REGS_16(i + 48)

// Numbers of the operands after the accumulators. Both in shared memory: a, b, whether d is added to
// (else it is overwritten), whether each tile's rows run along M or N. A in registers: its four, b,
// whether d is added to, whether b's rows run along N.
#define GE2_WGMMA_SHARED(TYPE, N, NAMES, A, B, ADD, TA, TB, U, V, ...) \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" ADD ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES "}, %" \
                 A ", %" B ", add, 1, 1, %" TA ", %" TB ";\n}" \
                 : __VA_ARGS__ \
                 : "l"(a), "l"(b), "r"(accumulate), "n"(TRANS_A), "n"(TRANS_B))

#define GE2_WGMMA_REGISTERS(TYPE, N, NAMES, A0, A1, A2, A3, B, ADD, TB, ...) \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" ADD ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES "}, " \
                 "{%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B ", add, 1, 1, %" TB ";\n}" \
                 : __VA_ARGS__ \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), \
                   "n"(TRANS_B))

#define GE2_WGMMA_SIZES(FORM, TYPE) \
    if constexpr (N == 8) { \
        FORM(TYPE, 8, "%0, %1, %2, %3", "4", "5", "6", "7", "8", "9", "10", GE2_REGS_4(0)); \
    } \
    else if constexpr (N == 16) { \
        FORM(TYPE, 16, "%0, %1, %2, %3, %4, %5, %6, %7", "8", "9", "10", "11", "12", "13", "14", \
             GE2_REGS_4(0), GE2_REGS_4(4)); \
    } \
    else if constexpr (N == 32) { \
        FORM(TYPE, 32, GE2_NAMES_0, "16", "17", "18", "19", "20", "21", "22", GE2_REGS_16(0)); \
    } \
    else if constexpr (N == 64) { \
        FORM(TYPE, 64, GE2_NAMES_0 ", " GE2_NAMES_1, "32", "33", "34", "35", "36", "37", "38", \
             GE2_REGS_16(0), GE2_REGS_16(16)); \
    } \
    else if constexpr (N == 80) { \
        FORM(TYPE, 80, GE2_NAMES_0 ", " GE2_NAMES_1 ", " \
             "%32, %33, %34, %35, %36, %37, %38, %39", "40", "41", "42", "43", "44", "45", "46", \
             GE2_REGS_16(0), GE2_REGS_16(16), GE2_REGS_4(32), GE2_REGS_4(36)); \
    } \
    else if constexpr (N == 96) { \
        FORM(TYPE, 96, GE2_NAMES_0 ", " GE2_NAMES_1 ", " GE2_NAMES_2, "48", "49", "50", "51", \
             "52", "53", "54", GE2_REGS_16(0), GE2_REGS_16(16), GE2_REGS_16(32)); \
    } \
    else if constexpr (N == 112) { \
        FORM(TYPE, 112, GE2_NAMES_0 ", " GE2_NAMES_1 ", " GE2_NAMES_2 ", " \
             "%48, %49, %50, %51, %52, %53, %54, %55", "56", "57", "58", "59", "60", "61", "62", \
             GE2_REGS_16(0), GE2_REGS_16(16), GE2_REGS_16(32), GE2_REGS_4(48), GE2_REGS_4(52)); \
    } \
    else if constexpr (N == 128) { \
        FORM(TYPE, 128, GE2_NAMES_0 ", " GE2_NAMES_1 ", " GE2_NAMES_2 ", " GE2_NAMES_3, "64", \
             "65", "66", "67", "68", "69", "70", GE2_REGS_64(0)); \
    } \
    else if constexpr (N == 144) { \
        FORM(TYPE, 144, GE2_NAMES_0 ", " GE2_NAMES_1 ", " GE2_NAMES_2 ", " GE2_NAMES_3 ", " \
             "%64, %65, %66, %67, %68, %69, %70, %71", "72", "73", "74", "75", "76", "77", "78", \
             GE2_REGS_64(0), GE2_REGS_4(64), GE2_REGS_4(68)); \
    } \
    else if constexpr (N == 160) { \
        FORM(TYPE, 160, GE2_NAMES_0 ", " GE2_NAMES_1 ", " GE2_NAMES_2 ", " GE2_NAMES_3 ", " \
             GE2_NAMES_4, "80", "81", "82", "83", "84", "85", "86", GE2_REGS_64(0), \
             GE2_REGS_16(64)); \
    } \
    else if constexpr (N == 176) { \
        FORM(TYPE, 176, GE2_NAMES_0 ", " GE2_NAMES_1 ", " GE2_NAMES_2 ", " GE2_NAMES_3 ", " \
             GE2_NAMES_4 ", " "%80, %81, %82, %83, %84, %85, %86, %87", "88", "89", "90", "91", \
             "92", "93", "94", GE2_REGS_64(0), GE2_REGS_16(64), GE2_REGS_4(80), \
             GE2_REGS_4(84)); \
    } \
    else if constexpr (N == 192) { \
        FORM(TYPE, 192, GE2_NAMES_0 ", " GE2_NAMES_1 ", " GE2_NAMES_2 ", " GE2_NAMES_3 ", " \
             GE2_NAMES_4 ", " GE2_NAMES_5, "96", "97", "98", "99", "100", "101", "102", \
             GE2_REGS_64(0), GE2_REGS_16(64), GE2_REGS_16(80)); \
    } \
    else if constexpr (N == 256) { \
        FORM(TYPE, 256, GE2_NAMES_0 ", " GE2_NAMES_1 ", " GE2_NAMES_2 ", " GE2_NAMES_3 ", " \
             GE2_NAMES_4 ", " GE2_NAMES_5 ", " GE2_NAMES_6 ", " GE2_NAMES_7, "128", "129", "130", \
             "131", "132", "133", "134", GE2_REGS_64(0), GE2_REGS_64(64)); \
    } \
    else static_assert(N == 0, "no wgmma of this width is declared")

template <int N, int TRANS_A, int TRANS_B>
inline void wgmma_f16(float (&d)[N / 2], unsigned long long a,
                      unsigned long long b, int accumulate) {
    GE2_WGMMA_SIZES(GE2_WGMMA_SHARED, "f16");
}

template <int N, int TRANS_A, int TRANS_B>
inline void wgmma_bf16(float (&d)[N / 2], unsigned long long a,
                       unsigned long long b, int accumulate) {
    GE2_WGMMA_SIZES(GE2_WGMMA_SHARED, "bf16");
}

// A in registers, laid out as accumulators are: a[i] holds columns lane % 4 * 2 and the next, of 0..7
// (i < 2) or 8..15, in row lane / 4 (i even) or the one eight further down.
template <int N, int TRANS_B>
inline void wgmma_f16_registers(float (&d)[N / 2], const unsigned* a, unsigned long long b,
                                int accumulate) {
    GE2_WGMMA_SIZES(GE2_WGMMA_REGISTERS, "f16");
}

template <int N, int TRANS_B>
inline void wgmma_bf16_registers(float (&d)[N / 2], const unsigned* a, unsigned long long b,
                                 int accumulate) {
    GE2_WGMMA_SIZES(GE2_WGMMA_REGISTERS, "bf16");
}

#undef GE2_WGMMA_SIZES
#undef GE2_WGMMA_REGISTERS
#undef GE2_WGMMA_SHARED

// tf32: 8 of K each, both operands along K; the lowest 13 bits of the elements are not looked at.
#define GE2_WGMMA_TF32(N, NAMES, A, B, ADD, ...) \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" ADD ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" NAMES "}, %" A ", %" \
                 B ", add, 1, 1;\n}" \
                 : __VA_ARGS__ \
                 : "l"(a), "l"(b), "r"(accumulate))

template <int N>
inline void wgmma_tf32(float (&d)[N / 2], unsigned long long a, unsigned long long b,
                       int accumulate) {
    if constexpr (N == 64) {
        GE2_WGMMA_TF32(64, GE2_NAMES_0 ", " GE2_NAMES_1, "32", "33", "34",
                       GE2_REGS_16(0), GE2_REGS_16(16));
    } else if constexpr (N == 128) {
        GE2_WGMMA_TF32(128, GE2_NAMES_0 ", " GE2_NAMES_1 ", " GE2_NAMES_2 ", " GE2_NAMES_3,
                       "64", "65", "66", GE2_REGS_64(0));
    } else if constexpr (N == 192) {
        GE2_WGMMA_TF32(192, GE2_NAMES_0 ", " GE2_NAMES_1 ", " GE2_NAMES_2 ", " GE2_NAMES_3 ", "
                       GE2_NAMES_4 ", " GE2_NAMES_5,
                       "96", "97", "98", GE2_REGS_64(0), GE2_REGS_16(64), GE2_REGS_16(80));
    } else {
        static_assert(N == 256, "no tf32 wgmma of this width is declared");
        GE2_WGMMA_TF32(256, GE2_NAMES_0 ", " GE2_NAMES_1 ", " GE2_NAMES_2 ", " GE2_NAMES_3 ", "
                       GE2_NAMES_4 ", " GE2_NAMES_5 ", " GE2_NAMES_6 ", " GE2_NAMES_7,
                       "128", "129", "130", GE2_REGS_64(0), GE2_REGS_64(64));
    }
}

#undef GE2_WGMMA_TF32

// 8 bits: 32 of K each, both operands along K. Integers are summed in 32 bits, modulo 2^32; of sums
// of floats the instruction keeps fewer bits than a float has.
#define GE2_INTS_4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define GE2_INTS_16(i) GE2_INTS_4(i), GE2_INTS_4(i + 4), GE2_INTS_4(i + 8), GE2_INTS_4(i + 12)
#define GE2_INTS_64(i) \
    GE2_INTS_16(i), GE2_INTS_16(i + 16), GE2_INTS_16(i + 32), GE2_INTS_16(i + 48)
#define GE2_WGMMA_8(N, TYPES, SCALES, NAMES, A, B, ADD, ...) \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" ADD ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32." TYPES " {" NAMES "}, %" A ", %" \
                 B ", add" SCALES ";\n}" \
                 : __VA_ARGS__ \
                 : "l"(a), "l"(b), "r"(accumulate))
#define GE2_WGMMA_8_SIZES(TYPES, SCALES, REGS_16, REGS_64) \
    if constexpr (N == 64) { \
        GE2_WGMMA_8(64, TYPES, SCALES, GE2_NAMES_0 ", " GE2_NAMES_1, "32", "33", "34", \
                    REGS_16(0), REGS_16(16)); \
    } else if constexpr (N == 128) { \
        GE2_WGMMA_8(128, TYPES, SCALES, \
                    GE2_NAMES_0 ", " GE2_NAMES_1 ", " GE2_NAMES_2 ", " GE2_NAMES_3, \
                    "64", "65", "66", REGS_64(0)); \
    } else { \
        static_assert(N == 256, "no 8-bit wgmma of this width is declared"); \
        GE2_WGMMA_8(256, TYPES, SCALES, \
                    GE2_NAMES_0 ", " GE2_NAMES_1 ", " GE2_NAMES_2 ", " GE2_NAMES_3 ", " \
                    GE2_NAMES_4 ", " GE2_NAMES_5 ", " GE2_NAMES_6 ", " GE2_NAMES_7, \
                    "128", "129", "130", REGS_64(0), REGS_64(64)); \
    }

template <int N>
inline void wgmma_s8(int (&d)[N / 2], unsigned long long a, unsigned long long b, int accumulate) {
    GE2_WGMMA_8_SIZES("s32.s8.s8", "", GE2_INTS_16, GE2_INTS_64)
}

template <int N>
inline void wgmma_u8(int (&d)[N / 2], unsigned long long a, unsigned long long b, int accumulate) {
    GE2_WGMMA_8_SIZES("s32.u8.u8", "", GE2_INTS_16, GE2_INTS_64)
}

template <int N>
inline void wgmma_e4m3(float (&d)[N / 2], unsigned long long a, unsigned long long b,
                       int accumulate) {
    GE2_WGMMA_8_SIZES("f32.e4m3.e4m3", ", 1, 1", GE2_REGS_16, GE2_REGS_64)
}

template <int N>
inline void wgmma_e5m2(float (&d)[N / 2], unsigned long long a, unsigned long long b,
                       int accumulate) {
    GE2_WGMMA_8_SIZES("f32.e5m2.e5m2", ", 1, 1", GE2_REGS_16, GE2_REGS_64)
}

#undef GE2_WGMMA_8_SIZES
#undef GE2_WGMMA_8
#undef GE2_INTS_64
#undef GE2_INTS_16
#undef GE2_INTS_4
#undef GE2_REGS_64
#undef GE2_REGS_16
#undef GE2_REGS_4
#undef GE2_NAMES_0
#undef GE2_NAMES_1
#undef GE2_NAMES_2
#undef GE2_NAMES_3
#undef GE2_NAMES_4
#undef GE2_NAMES_5
#undef GE2_NAMES_6
#undef GE2_NAMES_7

}  // namespace ge2::ptx
