// Implicit-GEMM convolution on tensor cores (mma.sync m16n8k16), f16 or bf16 with f32 sums.
#pragma once

#include <ge2/ptx/address.cuh>
#include <ge2/ptx/ldmatrix.cuh>
#include <ge2/ptx/mma.cuh>
#include <ge2/tile/conv_window.cuh>
#include <ge2/types.cuh>

namespace ge2 {

inline void mma_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], f16) {
    ptx::mma_m16n8k16_f16(d, a, b);
}
inline void mma_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], bf16) {
    ptx::mma_m16n8k16_bf16(d, a, b);
}

// 8 warps, 2 across channels and 4 across pixels, compute BM x 128 outputs.
template <typename T, typename Offset, int BM>
struct ConvMma {
    static constexpr int kThreads = 256;
    static constexpr int kBN = 128;
    static constexpr int kBK = 32;
    static constexpr int kM = BM / 2 / 16;      // m16 tiles of a warp
    static constexpr int kN = kBN / 4 / 8;      // n8 tiles of a warp
    static constexpr int kPitchW = kBK + 8;     // 16 bytes more: ldmatrix rows on distinct banks
    static constexpr int kPitchX = kBN + 8;
    static constexpr int kLoadsW = BM * kBK / kThreads;
    static constexpr int kLoadsX = kBN * kBK / kThreads;
    static constexpr int kTileBytes = (BM * kPitchW + kBK * kPitchX) * 2;
    static constexpr int kBytes = 2 * (kTileBytes + kBK * static_cast<int>(sizeof(Tap<Offset>)));

    template <typename Store>
    static void run(const ConvShape& s, const T* x, const T* w, unsigned char* memory,
                    Store store) {
        const int tid = static_cast<int>(threadIdx.x);
        const ConvTile tile = conv_tile<BM, kBN>(s, blockIdx.x);
        Tap<Offset>* taps = reinterpret_cast<Tap<Offset>*>(memory + 2 * kTileBytes);
        auto w_tile = [&](int b) { return reinterpret_cast<T*>(memory + b * kTileBytes); };
        auto x_tile = [&](int b) { return w_tile(b) + BM * kPitchW; };

        const int column = tid % kBN;
        const bool exists = tile.pixel + column < s.pixels;
        const Pixel<Offset> pixel = pixel_at<Offset>(s, exists ? tile.pixel + column : 0);
        const T* x_group = x + static_cast<Offset>(tile.group) *
                                   static_cast<Offset>(s.tap.extent[0]) * s.extent[0] *
                                   s.extent[1];
        const T* w_group = w + static_cast<Offset>(tile.group) * s.group_out * s.taps;

        auto decode = [&](int b, int k0) {
            if (tid < kBK)
                taps[b * kBK + tid] = tap_at<Offset>(s, k0 + tid < s.taps ? k0 + tid : 0);
        };
        T next_w[kLoadsW], next_x[kLoadsX];
        auto fetch = [&](int b, int k0) {
#pragma unroll
            for (int i = 0; i < kLoadsW; ++i) {
                const int item = tid + i * kThreads;
                const int m = tile.channel + item / kBK, k = k0 + item % kBK;
                next_w[i] = m < s.group_out && k < s.taps
                                ? w_group[static_cast<Offset>(m) * s.taps + k] : T{};
            }
#pragma unroll
            for (int i = 0; i < kLoadsX; ++i) {
                const int k = tid / kBN + i * (kThreads / kBN);
                const Tap<Offset> tap = taps[b * kBK + k];
                const bool there = exists && k0 + k < s.taps && inside(s, pixel, tap);
                next_x[i] = there ? x_group[pixel.base + tap.delta] : T{};
            }
        };
        auto keep = [&](int b) {
#pragma unroll
            for (int i = 0; i < kLoadsW; ++i) {
                const int item = tid + i * kThreads;
                w_tile(b)[item / kBK * kPitchW + item % kBK] = next_w[i];
            }
#pragma unroll
            for (int i = 0; i < kLoadsX; ++i)
                x_tile(b)[(tid / kBN + i * (kThreads / kBN)) * kPitchX + column] = next_x[i];
        };

        const int lane = tid % 32, warp = tid / 32;
        const int warp_m = warp % 2 * (BM / 2), warp_n = warp / 2 * (kBN / 4);
        float sum[kM][kN][4]{};
        decode(0, 0);
        __syncthreads();
        fetch(0, 0);
        keep(0);
        decode(1, kBK);
        __syncthreads();
        int b = 0;
        for (int k0 = 0; k0 < s.taps; k0 += kBK, b ^= 1) {
            const bool more = k0 + kBK < s.taps;
            if (more) fetch(b ^ 1, k0 + kBK);
#pragma unroll
            for (int k = 0; k < kBK; k += 16) {
                unsigned wf[kM][4], xf[kN][2];
#pragma unroll
                for (int i = 0; i < kM; ++i)
                    ptx::ldmatrix_x4(wf[i], ptx::smem_address(
                        w_tile(b) + (warp_m + i * 16 + lane % 16) * kPitchW + k + lane / 16 * 8));
#pragma unroll
                for (int j = 0; j < kN; j += 2) {
                    unsigned pair[4];
                    ptx::ldmatrix_x4_trans(pair, ptx::smem_address(
                        x_tile(b) + (k + lane % 16) * kPitchX + warp_n + j * 8 + lane / 16 * 8));
                    xf[j][0] = pair[0];
                    xf[j][1] = pair[1];
                    xf[j + 1][0] = pair[2];
                    xf[j + 1][1] = pair[3];
                }
#pragma unroll
                for (int i = 0; i < kM; ++i)
#pragma unroll
                    for (int j = 0; j < kN; ++j) mma_16816(sum[i][j], wf[i], xf[j], T{});
            }
            if (more) {
                keep(b ^ 1);
                decode(b, k0 + 2 * kBK);
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < kM; ++i)
#pragma unroll
            for (int j = 0; j < kN; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int channel = tile.channel + warp_m + i * 16 + lane / 4 + e / 2 * 8;
                    const int p = tile.pixel + warp_n + j * 8 + lane % 4 * 2 + e % 2;
                    if (channel < s.group_out && p < s.pixels)
                        store(sum[i][j][e], tile.group, channel, p);
                }
    }
};

}  // namespace ge2
