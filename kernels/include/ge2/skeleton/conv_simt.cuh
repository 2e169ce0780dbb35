// Implicit-GEMM convolution on the ordinary cores: tiles of channels x pixels, two buffers.
#pragma once

#include <ge2/tile/conv_window.cuh>
#include <ge2/types.cuh>

namespace ge2 {

// 256 threads compute BM x 128 outputs, each BM/16 x 8 of them.
template <typename T, typename Acc, typename Offset, int BM, int BK>
struct ConvSimt {
    static constexpr int kThreads = 256;
    static constexpr int kBN = 128;
    static constexpr int kTM = BM / 16;
    static constexpr int kTN = 8;
    static constexpr int kPitchW = BM + 4;  // keeps the k-major stores of W off one bank
    static constexpr int kLoadsW = (BM * BK + kThreads - 1) / kThreads;
    static constexpr int kLoadsX = kBN * BK / kThreads;
    static constexpr int kTileBytes = (kPitchW + kBN) * BK * static_cast<int>(sizeof(Acc));
    static constexpr int kBytes =
        2 * (kTileBytes + BK * static_cast<int>(sizeof(Tap<Offset>)));
    static_assert(BM % 16 == 0 && kThreads % BK == 0, "tile");

    // Calls store(sum, group, channel, pixel) for each output.
    template <typename Store>
    static void run(const ConvShape& s, const T* x, const T* w, unsigned char* memory,
                    Store store) {
        const int tid = static_cast<int>(threadIdx.x);
        const ConvTile tile = conv_tile<BM, kBN>(s, blockIdx.x);
        Acc* tiles = reinterpret_cast<Acc*>(memory);
        Tap<Offset>* taps = reinterpret_cast<Tap<Offset>*>(memory + 2 * kTileBytes);
        auto w_tile = [&](int b) { return tiles + b * (kTileBytes / static_cast<int>(sizeof(Acc))); };
        auto x_tile = [&](int b) { return w_tile(b) + kPitchW * BK; };

        const int column = tid % kBN;
        const bool exists = tile.pixel + column < s.pixels;
        const Pixel<Offset> pixel = pixel_at<Offset>(s, exists ? tile.pixel + column : 0);
        const T* x_group = x + static_cast<Offset>(tile.group) *
                                   static_cast<Offset>(s.tap.extent[0]) * s.extent[0] *
                                   s.extent[1];
        const T* w_group = w + static_cast<Offset>(tile.group) * s.group_out * s.taps;

        auto decode = [&](int b, int k0) {
            if (tid < BK) taps[b * BK + tid] = tap_at<Offset>(s, k0 + tid < s.taps ? k0 + tid : 0);
        };
        Acc next_w[kLoadsW], next_x[kLoadsX];
        auto fetch = [&](int b, int k0) {
#pragma unroll
            for (int i = 0; i < kLoadsW; ++i) {
                const int item = tid + i * kThreads;
                const int m = item / BK, k = k0 + item % BK;
                const bool there = m < BM && tile.channel + m < s.group_out && k < s.taps;
                next_w[i] = there ? static_cast<Acc>(to_compute(
                    w_group[static_cast<Offset>(tile.channel + m) * s.taps + k])) : Acc(0);
            }
#pragma unroll
            for (int i = 0; i < kLoadsX; ++i) {
                const int k = tid / kBN + i * (kThreads / kBN);
                const Tap<Offset> tap = taps[b * BK + k];
                const bool there = exists && k0 + k < s.taps && inside(s, pixel, tap);
                next_x[i] = there ? static_cast<Acc>(to_compute(x_group[pixel.base + tap.delta]))
                                  : Acc(0);
            }
        };
        auto keep = [&](int b) {
#pragma unroll
            for (int i = 0; i < kLoadsW; ++i) {
                const int item = tid + i * kThreads;
                if (item < BM * BK) w_tile(b)[item % BK * kPitchW + item / BK] = next_w[i];
            }
#pragma unroll
            for (int i = 0; i < kLoadsX; ++i)
                x_tile(b)[(tid / kBN + i * (kThreads / kBN)) * kBN + column] = next_x[i];
        };

        const int tm = tid / 16 * kTM, tn = tid % 16 * 4;
        Acc sum[kTM][kTN]{};
        decode(0, 0);
        __syncthreads();
        fetch(0, 0);
        keep(0);
        decode(1, BK);
        __syncthreads();
        int b = 0;
        for (int k0 = 0; k0 < s.taps; k0 += BK, b ^= 1) {
            const bool more = k0 + BK < s.taps;
            if (more) fetch(b ^ 1, k0 + BK);
#pragma unroll
            for (int k = 0; k < BK; ++k) {
                Acc wv[kTM], xv[kTN];
#pragma unroll
                for (int i = 0; i < kTM; ++i) wv[i] = w_tile(b)[k * kPitchW + tm + i];
#pragma unroll
                for (int j = 0; j < kTN; ++j)
                    xv[j] = x_tile(b)[k * kBN + tn + j % 4 + j / 4 * (kBN / 2)];
#pragma unroll
                for (int i = 0; i < kTM; ++i)
#pragma unroll
                    for (int j = 0; j < kTN; ++j) sum[i][j] += wv[i] * xv[j];
            }
            if (more) {
                keep(b ^ 1);
                decode(b, k0 + 2 * BK);
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < kTM; ++i) {
            const int channel = tile.channel + tm + i;
            if (channel >= s.group_out) continue;
#pragma unroll
            for (int j = 0; j < kTN; ++j) {
                const int p = tile.pixel + tn + j % 4 + j / 4 * (kBN / 2);
                if (p < s.pixels) store(sum[i][j], tile.group, channel, p);
            }
        }
    }
};

}  // namespace ge2
