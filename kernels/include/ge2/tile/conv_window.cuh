// Where a convolution reads: output pixels and filter taps as offsets into x.
//
// The convolution is the product W[channels][K] * X[K][pixels] per group, with K = taps (channel,
// kernel row, kernel column) and pixels = (image, output row, output column); X is never stored.
#pragma once

#include <ge2/tile/walk.cuh>

namespace ge2 {

struct ConvShape {
    Axes<3> pixel;      // images, output rows, output columns
    Axes<3> tap;        // input channels of a group, kernel rows, kernel columns
    int pixels;
    int taps;
    int groups;
    int group_out;      // output channels of a group
    int extent[2];      // of x: rows, columns
    int step[2];
    int pad[2];
    int dilation[2];
};

// One output pixel: where its window starts in x.
template <typename Offset>
struct Pixel {
    Offset base;  // of channel 0 of group 0, at the window's corner; may lie outside
    int row;
    int column;
};

// One tap relative to the window's corner.
template <typename Offset>
struct Tap {
    Offset delta;
    int row;
    int column;
};

template <typename Offset>
inline Pixel<Offset> pixel_at(const ConvShape& s, int pixel) {
    unsigned at[3];
    coordinates(static_cast<unsigned>(pixel), s.pixel, at);
    const int row = static_cast<int>(at[1]) * s.step[0] - s.pad[0];
    const int column = static_cast<int>(at[2]) * s.step[1] - s.pad[1];
    const Offset channels = static_cast<Offset>(s.tap.extent[0]) * s.groups;
    const Offset plane = static_cast<Offset>(s.extent[0]) * s.extent[1];
    return {static_cast<Offset>(at[0]) * channels * plane +
                static_cast<Offset>(row) * s.extent[1] + column,
            row, column};
}

template <typename Offset>
inline Tap<Offset> tap_at(const ConvShape& s, int tap) {
    unsigned at[3];
    coordinates(static_cast<unsigned>(tap), s.tap, at);
    const int row = static_cast<int>(at[1]) * s.dilation[0];
    const int column = static_cast<int>(at[2]) * s.dilation[1];
    const Offset plane = static_cast<Offset>(s.extent[0]) * s.extent[1];
    return {static_cast<Offset>(at[0]) * plane + static_cast<Offset>(row) * s.extent[1] + column,
            row, column};
}

template <typename Offset>
inline bool inside(const ConvShape& s, const Pixel<Offset>& p, const Tap<Offset>& t) {
    return static_cast<unsigned>(p.row + t.row) < static_cast<unsigned>(s.extent[0]) &&
           static_cast<unsigned>(p.column + t.column) < static_cast<unsigned>(s.extent[1]);
}

// The element of y for an output channel of a group and a pixel; y is dense NCHW.
template <typename Offset>
inline Offset output_at(const ConvShape& s, int group, int channel, int pixel) {
    unsigned at[3];
    coordinates(static_cast<unsigned>(pixel), s.pixel, at);
    const Offset plane = static_cast<Offset>(s.pixel.extent[1] * s.pixel.extent[2]);
    const Offset channels = static_cast<Offset>(s.group_out) * s.groups;
    return (static_cast<Offset>(at[0]) * channels +
            static_cast<Offset>(group) * s.group_out + channel) * plane +
           static_cast<Offset>(at[1]) * static_cast<Offset>(s.pixel.extent[2]) +
           static_cast<Offset>(at[2]);
}

// Which tile a block computes; channel tiles come fastest, so that blocks that read the same pixels
// run at the same time.
struct ConvTile {
    int group;
    int channel;
    int pixel;
};

template <int BM, int BN>
inline ConvTile conv_tile(const ConvShape& s, unsigned block) {
    const unsigned across = (static_cast<unsigned>(s.group_out) + BM - 1) / BM;
    const unsigned rest = block / across;
    const unsigned groups = static_cast<unsigned>(s.groups);
    return {static_cast<int>(rest % groups), static_cast<int>(block % across) * BM,
            static_cast<int>(rest / groups) * BN};
}

}  // namespace ge2
