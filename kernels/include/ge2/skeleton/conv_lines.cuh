// Convolution on tensor cores over lines of channels: 16-byte chunks of 8 channels of one pixel.
//
// A first kernel makes the lines. The product W[channels][K] * X[K][pixels] then has
// K = (kernel row, kernel column, chunk), every operand chunk is one asynchronous copy, and no copy
// is wider than what padding leaves out as a whole.
// Windows of 1 x 1 need no such lines: X is x itself, read in chunks of 8 pixels of one channel.
#pragma once

#include <ge2/gemm/mma_tile.cuh>
#include <ge2/ptx/address.cuh>
#include <ge2/ptx/cp_async.cuh>
#include <ge2/ptx/griddep.cuh>
#include <ge2/skeleton/conv_arrange.cuh>
#include <ge2/tile/walk.cuh>
#include <ge2/types.cuh>

namespace ge2 {

template <bool FIRST, typename A, typename B>
struct Either {
    using type = A;
};
template <typename A, typename B>
struct Either<false, A, B> {
    using type = B;
};

// BM channels by BN pixels for four warps, two by two. With SPLIT = 2, eight warps share the tile:
// four take the first half of every stage's K, four the second, and the sums are added at the end.
// PAIRED: a chunk holds two columns, of an odd window's last one only the first.
template <typename T, int BM, int BN, int STAGES, int SPLIT, bool PLANAR, bool PAIRED>
struct ConvProduct {
    static constexpr int kThreads = 128 * SPLIT;
    static constexpr int kBK = 64;
    static constexpr int kWarpM = BM / 2;
    static constexpr int kWarpN = BN / 2;
    static constexpr int kStepsM = kWarpM / 16;
    static constexpr int kStepsN = kWarpN / 8;
    using TileW = MmaTile<T, BM, kBK, kThreads, true, 8, true>;
    using TileX = MmaTile<T, BN, kBK, kThreads, !PLANAR, 8, true>;
    static constexpr int kStageBytes = TileW::BYTES + TileX::BYTES;
    static constexpr int kPitch = BN + 8;  // of f32 sums on their way to the epilogue
    static constexpr int kLoads = TileX::PER_THREAD;
    static constexpr int kAcross = TileX::CHUNKS;  // chunks of a line of the tile
    static_assert(kThreads % kAcross == 0, "a thread copies one chunk column");
    static_assert(BM * kPitch * 4 <= STAGES * kStageBytes, "sums take the stages' place");

    using Sums = float[kStepsM][kStepsN][4];

    struct Fragments {
        unsigned a[kStepsM][4], b[kStepsN / 2][4];

        void load(unsigned stage, int k, int row, int column, int lane) {
#pragma unroll
            for (int i = 0; i < kStepsM; ++i) TileW::read_a(a[i], stage, row + i * 16, k, lane);
#pragma unroll
            for (int j = 0; j < kStepsN / 2; ++j)
                TileX::read_b(b[j], stage + TileW::BYTES, column + j * 16, k, lane);
        }

        void multiply(Sums& sum) const {
#pragma unroll
            for (int i = 0; i < kStepsM; ++i)
#pragma unroll
                for (int j = 0; j < kStepsN; ++j) {
                    const unsigned right[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                    mma_k16(T{}, sum[i][j], a[i], right);
                }
        }
    };

    // Copies X for stages: chunks of channels at a tap.
    struct LineSource {
        const uint4* x;
        int base[kLoads], row[kLoads], column[kLoads];

        LineSource(const ConvLines& s, const uint4* lines, int group, int first_pixel) : x(lines) {
            const int pitch = s.groups * static_cast<int>(s.chunk.extent[2]);
#pragma unroll
            for (int j = 0; j < kLoads; ++j) {
                const int pixel = first_pixel + (static_cast<int>(threadIdx.x) + j * kThreads) / 8;
                unsigned at[3];
                coordinates(static_cast<unsigned>(pixel < s.pixels ? pixel : 0), s.pixel, at);
                row[j] = static_cast<int>(at[1]) * s.step[0] - s.pad[0];
                column[j] = static_cast<int>(at[2]) * s.step[1] - s.pad[1];
                base[j] = ((static_cast<int>(at[0]) * s.extent[0] + row[j]) * s.extent[1] +
                           column[j]) * pitch + group * static_cast<int>(s.chunk.extent[2]);
                if (pixel >= s.pixels) row[j] = -(1 << 30);
            }
        }

        void load(const ConvLines& s, unsigned tile, int chunk) const {
            unsigned at[3];
            coordinates(static_cast<unsigned>(chunk < s.chunks ? chunk : 0), s.chunk, at);
            const int down = static_cast<int>(at[0]) * s.dilation[0];
            const int right = static_cast<int>(at[1]) * s.dilation[1];
            const int pitch = s.groups * static_cast<int>(s.chunk.extent[2]);
            const int delta = (down * s.extent[1] + right) * pitch + static_cast<int>(at[2]);
            const int bytes = PAIRED && static_cast<int>(at[1]) * 2 + 1 == s.columns[1] ? 8 : 16;
#pragma unroll
            for (int j = 0; j < kLoads; ++j) {
                const int item = static_cast<int>(threadIdx.x) + j * kThreads;
                const bool there =
                    chunk < s.chunks &&
                    static_cast<unsigned>(row[j] + down) < static_cast<unsigned>(s.extent[0]) &&
                    static_cast<unsigned>(column[j] + right) < static_cast<unsigned>(s.extent[1]);
                ptx::cp_async_16(tile + TileX::offset(item / 8, item % 8),
                                 x + (there ? base[j] + delta : 0), there ? bytes : 0);
            }
        }
    };

    // Copies X for stages: chunks of pixels of a channel; windows of 1 x 1 that step by 1.
    struct PlaneSource {
        const uint4* x;
        int base;
        int per_channel;
        bool exists;

        PlaneSource(const ConvLines& s, const uint4* planes, int group, int first_pixel)
            : x(planes), per_channel(static_cast<int>(s.plane.extent[1]) / 8) {
            const int pixel = first_pixel + static_cast<int>(threadIdx.x) % kAcross * 8;
            exists = pixel < s.pixels;
            unsigned at[2];
            coordinates(static_cast<unsigned>(exists ? pixel : 0), s.plane, at);
            base = (static_cast<int>(at[0]) * s.groups + group) * s.group_in * per_channel +
                   static_cast<int>(at[1]) / 8;
        }

        void load(const ConvLines& s, unsigned tile, int chunk) const {
            const int first = chunk / 8 * 64;  // chunk is the first one's of the stage or behind
#pragma unroll
            for (int j = 0; j < kLoads; ++j) {
                const int item = static_cast<int>(threadIdx.x) + j * kThreads;
                const int channel = first + item / kAcross;
                const bool there = exists && channel < s.group_in;
                ptx::cp_async_16(tile + TileX::offset(item / kAcross, item % kAcross),
                                 x + (there ? base + channel * per_channel : 0), there ? 16 : 0);
            }
        }
    };

    // Leaves the sums in memory as [BM][kPitch] floats, for all threads to read.
    static void run(const ConvLines& s, const uint4* x, const T* w, unsigned char* memory,
                    int group, int first_channel, int first_pixel) {
        const int tid = static_cast<int>(threadIdx.x);
        const int warp = tid / 32, lane = tid % 32;
        const int row = warp % 2 * kWarpM, column = warp / 2 % 2 * kWarpN;
        const int share = warp / 4;  // of K
        const unsigned stages = ptx::smem_address(memory);
        const long long pitch = static_cast<long long>(s.chunks) * 8;
        const T* filters = w + (static_cast<long long>(group) * s.group_out + first_channel) *
                                   pitch;
        const typename Either<PLANAR, PlaneSource, LineSource>::type source(s, x, group, first_pixel);
        const int tiles = (s.chunks + 7) / 8;
        auto load = [&](int tile) {
            if (tile < tiles) {
                const unsigned stage = stages + tile % STAGES * kStageBytes;
                TileW::load(stage, filters + tile * kBK, pitch, 1, s.group_out - first_channel,
                            static_cast<int>(pitch) - tile * kBK);
                source.load(s, stage + TileW::BYTES, tile * 8 + tid % 8);
            }
            ptx::cp_async_commit();
        };
        Sums sum = {};
#pragma unroll
        for (int tile = 0; tile < STAGES - 1; ++tile) load(tile);
        for (int tile = 0; tile < tiles; ++tile) {
            ptx::cp_async_wait<STAGES - 2>();
            __syncthreads();  // the tile is there for all, and its predecessor's stage is free
            load(tile + STAGES - 1);
            const unsigned stage = stages + tile % STAGES * kStageBytes;
            Fragments fragments[2];
            const int from = share * (kBK / SPLIT);
            const int depth = s.chunks * 8 - tile * kBK - from;
            if (depth < kBK / SPLIT) {  // the last tile: behind its chunks are zeros
#pragma unroll 1
                for (int k = 0; k < depth; k += 16) {
                    fragments[0].load(stage, from + k, row, column, lane);
                    fragments[0].multiply(sum);
                }
                continue;
            }
            fragments[0].load(stage, from, row, column, lane);
#pragma unroll
            for (int k = 0; k < kBK / SPLIT; k += 16) {
                if (k + 16 < kBK / SPLIT)
                    fragments[k / 16 + 1 & 1].load(stage, from + k + 16, row, column, lane);
                fragments[k / 16 & 1].multiply(sum);
            }
        }
        ptx::cp_async_wait<0>();
        __syncthreads();
        float* target = reinterpret_cast<float*>(memory) + (row + lane / 4) * kPitch + column +
                        lane % 4 * 2;
#pragma unroll
        for (int turn = 0; turn < SPLIT; ++turn) {
            if (share == turn) leave(sum, target, turn > 0);
            __syncthreads();
        }
    }

    // Stores a warp's sums, or adds them to what another warp stored.
    static void leave(const Sums& sum, float* target, bool add) {
#pragma unroll
        for (int i = 0; i < kStepsM; ++i)
#pragma unroll
            for (int j = 0; j < kStepsN; ++j)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float2* at = reinterpret_cast<float2*>(
                        target + (i * 16 + half * 8) * kPitch + j * 8);
                    const float2 before = add ? *at : make_float2(0.0f, 0.0f);
                    *at = make_float2(before.x + sum[i][j][2 * half],
                                      before.y + sum[i][j][2 * half + 1]);
                }
    }
};

}  // namespace ge2
