// From a linear index to element offsets of several strided tensors, with precomputed division.
#pragma once

namespace ge2 {

// n / divisor for n < 2^31; multiplier and shift come from the host's divider().
inline unsigned divide(unsigned n, unsigned multiplier, unsigned shift) {
    const unsigned high =
        static_cast<unsigned>((static_cast<unsigned long long>(n) * multiplier) >> 32);
    return (high + n) >> shift;
}

// The axes of a walk, outermost first; extent[0] is never divided by.
template <int RANK>
struct Axes {
    long long extent[RANK];
    unsigned multiplier[RANK];
    unsigned shift[RANK];
};

// Splits a linear index into coordinates; 32-bit indices divide by multiplication.
template <int RANK>
inline void coordinates(unsigned linear, const Axes<RANK>& axes, unsigned (&at)[RANK]) {
#pragma unroll
    for (int axis = RANK - 1; axis > 0; --axis) {
        const unsigned rest = divide(linear, axes.multiplier[axis], axes.shift[axis]);
        at[axis] = linear - rest * static_cast<unsigned>(axes.extent[axis]);
        linear = rest;
    }
    at[0] = linear;
}

template <int RANK>
inline void coordinates(unsigned long long linear, const Axes<RANK>& axes,
                        unsigned long long (&at)[RANK]) {
#pragma unroll
    for (int axis = RANK - 1; axis > 0; --axis) {
        const unsigned long long extent = static_cast<unsigned long long>(axes.extent[axis]);
        const unsigned long long rest = linear / extent;
        at[axis] = linear - rest * extent;
        linear = rest;
    }
    at[0] = linear;
}

// The element offset of coordinates under one tensor's strides.
template <typename Offset, typename Linear, int RANK>
inline Offset offset_of(const Linear (&at)[RANK], const long long (&stride)[RANK]) {
    Offset sum = 0;
#pragma unroll
    for (int axis = 0; axis < RANK; ++axis)
        sum += static_cast<Offset>(at[axis]) * static_cast<Offset>(stride[axis]);
    return sum;
}

}  // namespace ge2
