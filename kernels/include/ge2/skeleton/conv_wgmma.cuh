// Convolution as a product by wgmma over padded lines (see conv_arrange.cuh) of windows that step
// by 1: W[channels][K] * X[K][pixels] with K = (kernel row, kernel column, channel).
//
// The pixels are those of the padded images. A window element is then as far from its pixel as from
// any other, so that a tile of X is one box of consecutive pixels; before the first and behind the
// last image the copy engine fills in zeros. What is computed for pixels without an output, those
// behind a row or an image, is not written.
//
// A stage may serve all kernel rows of a kernel column: with rows of a multiple of 8 pixels, each
// reads the same box of pixels from another place on, where the swizzle begins anew.
#pragma once

#include <ge2/ptx/address.cuh>
#include <ge2/shared.cuh>
#include <ge2/skeleton/wgmma_gemm.cuh>
#include <ge2/tile/walk.cuh>
#include <ge2/types.cuh>

namespace ge2 {

struct ConvPadded {
    Axes<3> pixel;    // images, rows, columns, as x is padded
    Axes<3> step;     // kernel rows by TAPS, kernel columns, steps of 64 channels
    int extent[2];    // of y: rows, columns
    int pad[2];
    int dilation[2];
    int channels;     // of y
    int group_out;
    int box_rows;     // pixels of a box; a stage has as many boxes as 256 pixels each ask for

    // Where y[image][channel] has the output of a padded pixel; -1: nowhere.
    long long output(int padded, int channel) const {
        unsigned at[3];
        coordinates(static_cast<unsigned>(padded), pixel, at);
        const int row = static_cast<int>(at[1]), column = static_cast<int>(at[2]);
        if (at[0] >= pixel.extent[0] || row >= extent[0] || column >= extent[1]) return -1;
        return ((static_cast<long long>(at[0]) * channels + channel) * extent[0] + row) *
                   extent[1] + column;
    }

    // The elements at two neighbouring pixels, the first one even, of a tensor laid out as y; zeros
    // where there is no output. With VEC == 2 both or none are there.
    template <int VEC, typename T>
    Vec<T, 2> pair(const T* from, int padded, int channel) const {
        Vec<T, 2> found{};
        const long long first = output(padded, channel);
        if constexpr (VEC == 2) {
            if (first >= 0) found = *reinterpret_cast<const Vec<T, 2>*>(from + first);
        } else {
            const long long second = output(padded + 1, channel);
            if (first >= 0) found.v[0] = from[first];
            if (second >= 0) found.v[1] = from[second];
        }
        return found;
    }
};

// What WgmmaGemm asks of a convolution's plan. VEC neighbours of y are written at once. A stage has
// filters of KERNEL_ROWS taps, and pixels for BN sums and the HALO behind them that those taps read.
template <typename Args, typename T, int VEC, int BN, int KERNEL_ROWS, int HALO_PIXELS>
struct ConvWgmma : WindowPlan {
    static constexpr bool DIRECT = true;
    static constexpr int TAPS = KERNEL_ROWS;
    static constexpr int HALO = HALO_PIXELS;
    static constexpr int BOXES = (BN + HALO + 255) / 256;

    static int tap_rows(const Args& args) {
        return args.shape.dilation[0] * static_cast<int>(args.shape.pixel.extent[2]);
    }

    // Filters of the taps, and the pixels from where the first tap reads.
    template <typename TileA, typename TileB>
    static void load(const Args& args, const WgmmaWork& work, int step, unsigned stage,
                     unsigned bar) {
        const ConvPadded& s = args.shape;
        unsigned at[3];
        coordinates(static_cast<unsigned>(step), s.step, at);
        const int first_row = static_cast<int>(at[0]) * TAPS;
        const int column = static_cast<int>(at[1]), channel = static_cast<int>(at[2]) * 64;
        const int shift = first_row * tap_rows(args) + column * s.dilation[1] -
                          s.pad[0] * static_cast<int>(s.pixel.extent[2]) - s.pad[1];
        ptx::mbarrier_arrive_expect_tx(bar, TAPS * TileA::BYTES + BOXES * s.box_rows * 128);
#pragma unroll
        for (int tap = 0; tap < TAPS; ++tap) {
            TileA::load(stage + tap * TileA::BYTES, &args.map_a,
                        work.row + work.batch * s.group_out, channel,
                        (first_row + tap) * static_cast<int>(s.step.extent[1]) + column, bar);
        }
#pragma unroll
        for (int box = 0; box < BOXES; ++box) {
            const int pixel = box * s.box_rows;
            TileB::load(stage + TAPS * TileA::BYTES + pixel * 128, &args.map_b,
                        work.column + shift + pixel, channel, work.batch, bar);
        }
    }

    // Writes 16 channels of the pixels in a box, a channel at a time.
    template <typename Box>
    static void write(const Args& args, unsigned box, const WgmmaWork& work, int lane) {
        const ConvPadded& s = args.shape;
        const T* staged = reinterpret_cast<const T*>(
            shared_memory() + (box - ptx::smem_address(shared_memory())));
        const long long plane = static_cast<long long>(s.extent[0]) * s.extent[1];
        const int rows = s.group_out - work.row < 16 ? s.group_out - work.row : 16;
#pragma unroll
        for (int first = 0; first < Box::COLUMNS; first += 32 * VEC) {
            const int column = first + lane * VEC;
            const long long place =
                s.output(work.column + column, work.batch * s.group_out + work.row);
            if (place < 0) continue;
#pragma unroll 4
            for (int row = 0; row < rows; ++row) {
                const int chunk = column / 8 ^ (row & 7);
                *reinterpret_cast<Vec<T, VEC>*>(args.y + place + row * plane) =
                    *reinterpret_cast<const Vec<T, VEC>*>(staged + row * Box::COLUMNS + chunk * 8 +
                                                          column % 8);
            }
        }
    }
};

}  // namespace ge2
