// Bringing x from NCHW and filters into lines of channels: 16-byte chunks of 8 channels of one pixel.
//
// x becomes [image][row][column][group][chunk], the filters [channel][kernel row][kernel column]
// [chunk]; channels are padded with zeros to chunks. Where images are padded as well, a pixel beside
// or below an image is as many chunks away as any neighbour.
//
// Where windows of up to 4 channels step by 2 columns, a chunk holds 4 channels of 2 columns instead:
// x is as many chunks wide as the convolution has columns to step over.
#pragma once

#include <ge2/ptx/griddep.cuh>
#include <ge2/shared.cuh>
#include <ge2/tile/walk.cuh>
#include <ge2/types.cuh>

namespace ge2 {

struct ConvLines {
    Axes<3> pixel;      // images, output rows, output columns
    Axes<3> chunk;      // kernel rows, kernel columns, chunks of a group's channels
    Axes<2> plane;      // images, output pixels of one image
    Axes<2> x_plane;    // images, input pixels of one image
    Axes<3> x_pixel;    // images, input rows, input columns
    int pixels;         // of the output
    int chunks;         // of a filter
    int groups;
    int group_in;       // input channels of a group
    int group_out;      // output channels of a group
    int lead;           // zero columns before those of x, where a chunk holds two
    int extent[2];      // of x: rows, columns
    int pitch[2];       // the same of its lines, with the zeros behind a row and behind an image
    int columns[2];     // of x and of the filters; extent and chunk count chunks
    int step[2];
    int pad[2];
    int dilation[2];
};

// One block: 512 / CHUNKS pixels of CHUNKS chunks. VEC neighbours of a plane are read at once.
// PADDED lines have zeros behind each row and each image.
template <typename T, int CHUNKS, int VEC, bool PADDED>
struct LineBlock {
    static constexpr int kThreads = 256;
    static constexpr int kPixels = 512 / CHUNKS;
    static constexpr int kPitch = kPixels + 1;  // odd: neighbouring channels on distinct banks
    static constexpr int kItems = 8 * CHUNKS * (kPixels / VEC) / kThreads;  // of a thread
    static constexpr int kBatch = kItems < 4 ? kItems : 4;

    struct Place {
        int row, pixel;  // channel and first pixel of the block
    };

    static Place place(int item) {
        return {item / (kPixels / VEC), item % (kPixels / VEC) * VEC};
    }

    // pixel counts all images' input pixels.
    static void run(const ConvLines& s, const T* x, uint4* lines, T* memory, int group,
                    int first_chunk, int first_pixel) {
        const int tid = static_cast<int>(threadIdx.x);
        const int per_image = static_cast<int>(s.x_plane.extent[1]);
        const int pixels = static_cast<int>(s.x_plane.extent[0]) * per_image;
        const int chunks = static_cast<int>(s.chunk.extent[2]);
        const int all_channels = s.groups * s.group_in;
        // All of a batch are on their way before the first is needed.
        for (int first = 0; first < kItems; first += kBatch) {
            Vec<T, VEC> found[kBatch] = {};
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                const Place at = place(tid + (first + i) * kThreads);
                const int channel = first_chunk * 8 + at.row;
                if (channel < s.group_in && first_pixel + at.pixel < pixels) {
                    unsigned split[2];
                    coordinates(static_cast<unsigned>(first_pixel + at.pixel), s.x_plane, split);
                    found[i] = *reinterpret_cast<const Vec<T, VEC>*>(
                        x + (static_cast<long long>(split[0]) * all_channels + group * s.group_in +
                             channel) * per_image + split[1]);
                }
            }
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                const Place at = place(tid + (first + i) * kThreads);
#pragma unroll
                for (int e = 0; e < VEC; ++e) memory[at.row * kPitch + at.pixel + e] = found[i].v[e];
            }
        }
        __syncthreads();
        for (int item = tid; item < CHUNKS * kPixels; item += kThreads) {
            const int chunk = item % CHUNKS;
            const int p = item / CHUNKS;
            if (first_chunk + chunk >= chunks || first_pixel + p >= pixels) continue;
            const T* from = memory + chunk * 8 * kPitch + p;
            unsigned words[4];
#pragma unroll
            for (int w = 0; w < 4; ++w)
                words[w] = from[2 * w * kPitch].bits |
                           static_cast<unsigned>(from[(2 * w + 1) * kPitch].bits) << 16;
            const uint4 line = make_uint4(words[0], words[1], words[2], words[3]);
            const auto put = [&](long long pixel, const uint4& found) {
                lines[(pixel * s.groups + group) * chunks + first_chunk + chunk] = found;
            };
            if constexpr (PADDED) {
                put_padded(s, static_cast<unsigned>(first_pixel + p), line, put);
            } else {
                put(first_pixel + p, line);
            }
        }
    }

    // The last pixel of a row or an image also writes the zeros behind it.
    template <typename Put>
    static void put_padded(const ConvLines& s, unsigned pixel, const uint4& line, const Put& put) {
        unsigned at[3];
        coordinates(pixel, s.x_pixel, at);
        const int top = static_cast<int>(at[1]), left = static_cast<int>(at[2]);
        const int bottom = top + 1 == s.extent[0] ? s.pitch[0] : top + 1;
        const int right = left + 1 == s.extent[1] ? s.pitch[1] : left + 1;
        const long long first = (static_cast<long long>(at[0]) * s.pitch[0] + top) * s.pitch[1];
        put(first + left, line);
        if (bottom - top + right - left == 2) return;
#pragma unroll 1
        for (int row = 0; row < bottom - top; ++row) {
#pragma unroll 1
            for (int column = left + (row == 0); column < right; ++column) {
                put(first + row * s.pitch[1] + column, make_uint4(0u, 0u, 0u, 0u));
            }
        }
    }
};

template <typename T>
inline void filter_chunk(const ConvLines& s, const T* w, uint4* lines, long long place) {
    const int taps = static_cast<int>(s.chunk.extent[0] * s.chunk.extent[1]);
    const int chunks = static_cast<int>(s.chunk.extent[2]);
    const long long line = place / taps;
    const int tap = static_cast<int>(place - line * taps);
    const long long channel = line / chunks;
    const int chunk = static_cast<int>(line - channel * chunks);
    if (channel >= static_cast<long long>(s.groups) * s.group_out) return;
    unsigned words[4];
#pragma unroll
    for (int half = 0; half < 8; ++half) {
        const int c = chunk * 8 + half;
        const unsigned bits =
            c < s.group_in ? w[(channel * s.group_in + c) * taps + tap].bits : 0u;
        words[half / 2] = half % 2 ? words[half / 2] | bits << 16 : bits;
    }
    lines[(channel * taps + tap) * chunks + chunk] =
        make_uint4(words[0], words[1], words[2], words[3]);
}

// A chunk of 4 channels of 2 columns, from planes of channels.
template <typename T>
inline uint4 column_pair(const T* row, int channels, long long plane, int column, int columns) {
    unsigned words[4] = {};
    for (int side = 0; side < 2; ++side) {
        const bool there = static_cast<unsigned>(column + side) < static_cast<unsigned>(columns);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            if (there && c < channels) {
                words[side * 2 + c / 2] |=
                    static_cast<unsigned>(row[c * plane + column + side].bits) << c % 2 * 16;
            }
        }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// One chunk of x or of the filters; place counts those of x, then those of the filters.
template <typename T>
inline void paired_chunk(const ConvLines& s, const T* x, const T* w, uint4* x_lines, uint4* w_lines,
                         long long place) {
    const long long pixels = s.x_pixel.extent[0] * s.x_pixel.extent[1] * s.x_pixel.extent[2];
    const int height = static_cast<int>(s.chunk.extent[0]);
    if (place < pixels) {
        unsigned at[3];
        coordinates(static_cast<unsigned>(place), s.x_pixel, at);
        const long long plane = static_cast<long long>(s.extent[0]) * s.columns[0];
        const T* row = x + at[0] * s.group_in * plane + static_cast<long long>(at[1]) * s.columns[0];
        x_lines[place] = column_pair(row, s.group_in, plane, static_cast<int>(at[2]) * 2 - s.lead,
                                     s.columns[0]);
        return;
    }
    const int width = static_cast<int>(s.chunk.extent[1]);
    const long long line = (place - pixels) / width;  // a filter's row
    const int pair = static_cast<int>(place - pixels - line * width);
    if (line >= static_cast<long long>(s.group_out) * height) return;
    const long long plane = static_cast<long long>(height) * s.columns[1];
    const T* row = w + line / height * s.group_in * plane + line % height * s.columns[1];
    w_lines[place - pixels] = column_pair(row, s.group_in, plane, pair * 2, s.columns[1]);
}

template <typename T>
struct ArrangeArgs {
    const T* x;
    const T* w;
    uint4* x_lines;
    uint4* w_lines;
    ConvLines shape;
};

// The kernel where a chunk holds two columns.
template <typename T>
inline void arrange_pairs(const ArrangeArgs<T>& args) {
    ptx::griddep_launch_dependents();
    paired_chunk(args.shape, args.x, args.w, args.x_lines, args.w_lines,
                 static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x);
}

// The kernel elsewhere: blocks of x, chunks of channels fastest, then those of the filters.
template <typename T, int CHUNKS, int VEC, bool PADDED>
inline void arrange_lines(const ArrangeArgs<T>& args) {
    using Block = LineBlock<T, CHUNKS, VEC, PADDED>;
    ptx::griddep_launch_dependents();
    const ConvLines& s = args.shape;
    const int across = (static_cast<int>(s.chunk.extent[2]) + CHUNKS - 1) / CHUNKS;
    const int pixels = static_cast<int>(s.x_plane.extent[0] * s.x_plane.extent[1]);
    const int down = (pixels + Block::kPixels - 1) / Block::kPixels;
    const int block = static_cast<int>(blockIdx.x);
    if (block < across * s.groups * down) {
        const int rest = block / across;
        Block::run(s, args.x, args.x_lines, reinterpret_cast<T*>(shared_memory()),
                   rest % s.groups, block % across * CHUNKS, rest / s.groups * Block::kPixels);
    } else {
        filter_chunk(s, args.w, args.w_lines,
                     static_cast<long long>(block - across * s.groups * down) * Block::kThreads +
                         threadIdx.x);
    }
}

}  // namespace ge2
