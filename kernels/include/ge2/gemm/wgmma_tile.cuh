// Operand tiles for wgmma: TMA boxes in 128-byte swizzle and the descriptors that read them.
#pragma once

#include <ge2/ptx/tma.cuh>
#include <ge2/ptx/wgmma.cuh>
#include <ge2/types.cuh>

namespace ge2 {

// A tile of EXTENT rows (of A or B; indexed i) by 128 bytes of k. A K-major operand is one box of
// all k by EXTENT, any other (16-bit only) is EXTENT / 64 boxes of 64 i by 64 k, 8 KiB each.
template <typename T, int EXTENT, bool K_MAJOR>
struct WgmmaTile {
    static constexpr int K = 128 / sizeof(T);
    static constexpr int BYTES = EXTENT * 128;
    static constexpr int TRANSPOSED = K_MAJOR ? 0 : 1;
    static constexpr unsigned STEP_K = (K_MAJOR ? 32 : 2048) / 16;  // of one instruction; in
    static constexpr unsigned STEP_I64 = 8192 / 16;                 // descriptor units
    static_assert(K_MAJOR || sizeof(T) == 2, "only 16-bit operands may run along i");

    static void load(unsigned tile, const ptx::TensorMap* map, int i, int k, int batch,
                     unsigned bar) {
        if constexpr (K_MAJOR) {
            ptx::tma_load_3d(tile, map, k, i, batch, bar);
        } else {
#pragma unroll
            for (int box = 0; box < EXTENT / 64; ++box) {
                ptx::tma_load_3d(tile + box * 8192, map, i + box * 64, k, batch, bar);
            }
        }
    }

    static unsigned long long descriptor(unsigned tile) {
        return ptx::wgmma_descriptor(tile, K_MAJOR ? 16 : 8192, 1024);
    }
};

template <int N, int TRANS_A, int TRANS_B>
inline void wgmma(f16, float (&d)[N / 2], unsigned long long a, unsigned long long b,
                  int accumulate) {
    ptx::wgmma_f16<N, TRANS_A, TRANS_B>(d, a, b, accumulate);
}

template <int N, int TRANS_A, int TRANS_B>
inline void wgmma(bf16, float (&d)[N / 2], unsigned long long a, unsigned long long b,
                  int accumulate) {
    ptx::wgmma_bf16<N, TRANS_A, TRANS_B>(d, a, b, accumulate);
}

template <int N, int TRANS_A, int TRANS_B>
inline void wgmma(float, float (&d)[N / 2], unsigned long long a, unsigned long long b,
                  int accumulate) {
    ptx::wgmma_tf32<N>(d, a, b, accumulate);
}

// The same with A in registers; see ptx.
template <int N, int TRANS_B>
inline void wgmma_registers(f16, float (&d)[N / 2], const unsigned* a, unsigned long long b,
                            int accumulate) {
    ptx::wgmma_f16_registers<N, TRANS_B>(d, a, b, accumulate);
}

template <int N, int TRANS_B>
inline void wgmma_registers(bf16, float (&d)[N / 2], const unsigned* a, unsigned long long b,
                            int accumulate) {
    ptx::wgmma_bf16_registers<N, TRANS_B>(d, a, b, accumulate);
}

template <int N, int TRANS_A, int TRANS_B>
inline void wgmma(signed char, int (&d)[N / 2], unsigned long long a, unsigned long long b,
                  int accumulate) {
    ptx::wgmma_s8<N>(d, a, b, accumulate);
}

template <int N, int TRANS_A, int TRANS_B>
inline void wgmma(unsigned char, int (&d)[N / 2], unsigned long long a, unsigned long long b,
                  int accumulate) {
    ptx::wgmma_u8<N>(d, a, b, accumulate);
}

template <int N, int TRANS_A, int TRANS_B>
inline void wgmma(f8e4m3, float (&d)[N / 2], unsigned long long a, unsigned long long b,
                  int accumulate) {
    ptx::wgmma_e4m3<N>(d, a, b, accumulate);
}

template <int N, int TRANS_A, int TRANS_B>
inline void wgmma(f8e5m2, float (&d)[N / 2], unsigned long long a, unsigned long long b,
                  int accumulate) {
    ptx::wgmma_e5m2<N>(d, a, b, accumulate);
}

// What products of operands are summed in.
template <typename T>
struct WgmmaSum {
    using type = float;
};
template <>
struct WgmmaSum<signed char> {
    using type = int;
};
template <>
struct WgmmaSum<unsigned char> {
    using type = int;
};

// Where a role stands in a ring of stages; parity is that of the current lap.
template <int STAGES>
struct RingPosition {
    int stage = 0;
    unsigned parity = 0;

    void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }

    // Steps over count stages that another role uses.
    void skip(int count) {
        const int reached = stage + count;
        parity ^= reached / STAGES & 1;
        stage = reached % STAGES;
    }
};

}  // namespace ge2
