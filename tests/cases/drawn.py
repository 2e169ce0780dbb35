"""Random nodes for hypothesis: shapes, axes, broadcasting, steps; compared with NumPy and torch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from .nodes import Example, Shape

Examples = st.SearchStrategy[Example]

SMALL = tuple(range(6))  # extents that try every edge
REAL = (1, 3, 8, 33, 64, 130)  # parts of accesses and whole ones, whole tiles and a little more
MOST = 1 << 16  # elements of a tensor, since emulators and doubles take their time


def shapes(extents: Sequence[int] = SMALL, ranks: tuple[int, int] = (1, 4), *,
           empty: bool = True) -> st.SearchStrategy[Shape]:
    """Return shapes of so many axes; without `empty` no extent is 0."""
    extent = st.sampled_from([n for n in extents if n or empty])
    return st.integers(*ranks).flatmap(lambda rank: st.tuples(*[extent] * rank)).filter(
        lambda shape: prod(shape) <= MOST)


def some_axes(shape: Shape) -> st.SearchStrategy[list[int]]:
    """Return lists of axes, counted from either end, none twice."""
    rank = len(shape)
    return st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=rank,
                    unique_by=lambda axis: axis % rank)


@st.composite
def broadcasting(draw: st.DrawFn, ops: Sequence[str], extents: Sequence[int] = SMALL) -> Example:
    """Two operands, each with some of its axes left out or of extent 1."""
    shape = draw(shapes(extents))
    operands = [tuple(n if keep else 1 for n, keep in zip(
        shape[cut:], draw(st.tuples(*[st.booleans()] * (len(shape) - cut))), strict=True))
        for cut in (0, draw(st.integers(0, len(shape))))]
    return Example(draw(st.sampled_from(ops)), tuple(draw(st.permutations(operands))), low=-1.0)


@st.composite
def choices(draw: st.DrawFn, extents: Sequence[int] = SMALL) -> Example:
    """WHERE with a condition of trailing axes and one operand of a single element."""
    shape = draw(shapes(extents))
    cut = draw(st.integers(0, len(shape)))
    return Example("WHERE", (shape[cut:], shape, (1,) * len(shape)), low=-1.0)


@st.composite
def reductions(draw: st.DrawFn, ops: Sequence[str], extents: Sequence[int] = SMALL) -> Example:
    """Any axes, kept or not; what has no value of nothing is not asked for one."""
    op = draw(st.sampled_from(ops))
    shape = draw(shapes(extents, empty=op in ("REDUCE_SUM", "REDUCE_PROD")))
    attrs = {"axes": draw(some_axes(shape)), "keepdims": draw(st.booleans())}
    return Example(op, (shape,), attrs, low=-1.0)


@st.composite
def slices(draw: st.DrawFn, extents: Sequence[int] = SMALL) -> Example:
    """Starts and ends inside and outside of the axes, steps forwards and backwards."""
    shape = draw(shapes(extents))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    ends = st.integers(-7, 7)
    each = [draw(st.tuples(ends, ends, st.sampled_from([1, 2, 3, -1, -2]))) for _ in axes]
    return Example("SLICE", (shape,), {"axes": axes, "starts": [s[0] for s in each],
                                       "ends": [s[1] for s in each],
                                       "steps": [s[2] for s in each]}, low=-1.0)


def slice_index(example: Example) -> tuple[slice, ...]:
    """Return the index of NumPy that a SLICE is."""
    (shape,), attrs = example.shapes, example.attrs
    index = [slice(None)] * len(shape)
    for axis, start, end, step in zip(attrs["axes"], attrs["starts"], attrs["ends"],
                                      attrs["steps"], strict=True):
        # ONNX counts a negative end of a negative step from the end, and clamps it to -1.
        stop = end + shape[axis] if end < 0 else end
        index[axis] = slice(start, None if stop < 0 and step < 0 else max(stop, 0), step)
    return tuple(index)


@st.composite
def movement(draw: st.DrawFn, ops: Sequence[str], extents: Sequence[int] = SMALL) -> Example:
    """TRANSPOSE, FLIP, CONCAT, TILE, EXPAND or UNSQUEEZE along any axis."""
    op, shape = draw(st.sampled_from(ops)), draw(shapes(extents))
    rank = len(shape)
    axis = st.integers(-rank, rank - 1)
    attrs = {
        "TRANSPOSE": lambda: {"perm": draw(st.permutations(range(rank)))},
        "FLIP": lambda: {"axes": [draw(axis)]},
        "CONCAT": lambda: {"axis": draw(axis)},
        "TILE": lambda: {"repeats": draw(st.lists(st.integers(0, 3), min_size=rank,
                                                  max_size=rank))},
        "EXPAND": lambda: {"shape": [2, *(1,) * rank]},
        "UNSQUEEZE": lambda: {"axes": [draw(st.integers(-rank - 1, rank))]},
    }[op]()
    return Example(op, (shape,) * (3 if op == "CONCAT" else 1), attrs, low=-1.0)


@st.composite
def pads(draw: st.DrawFn, modes: Sequence[str], extents: Sequence[int] = SMALL) -> Example:
    """Up to four more elements at either end of each axis."""
    mode = draw(st.sampled_from(modes))
    shape = draw(shapes(extents, empty=mode == "constant"))
    both = draw(st.lists(st.integers(0, 4), min_size=2 * len(shape), max_size=2 * len(shape)))
    return Example("PAD", (shape,), {"pads": both, "mode": mode, "value": 1.5}, low=-1.0)


@st.composite
def gathers(draw: st.DrawFn, extents: Sequence[int] = SMALL) -> Example:
    """Places along any axis, counted from either end."""
    shape = draw(shapes(extents, (1, 3), empty=False))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    n = shape[axis]
    return Example("GATHER", (shape, draw(shapes(extents, (1, 2)))), {"axis": axis},
                   {1: (-n, n)}, low=-1.0)


@st.composite
def matmuls(draw: st.DrawFn, extents: Sequence[int] = SMALL, batches: int = 2) -> Example:
    """Products of matrices with broadcast batch axes."""
    m, k, n = (draw(st.sampled_from(extents)) for _ in range(3))
    batch = draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=batches, max_side=3))
    a, b = batch.input_shapes
    return Example("MATMUL", ((*a, m, k), (*b, k, n)), low=-1.0)


@st.composite
def norms(draw: st.DrawFn, ops: Sequence[str], extents: Sequence[int] = REAL) -> Example:
    """Softmax along any axis; norms over the last one, or over groups of channels."""
    op = draw(st.sampled_from(ops))
    if op == "GROUP_NORM":
        shape = (*draw(shapes(extents, (1, 1))), 6, *draw(shapes(extents, (1, 2))))
        return Example(op, (shape, (6,), (6,)), {"num_groups": draw(st.sampled_from([1, 2, 3]))},
                       low=-1.0)
    shape = draw(shapes(extents, (1, 3)))
    if op in ("SOFTMAX", "LOG_SOFTMAX"):
        axis = draw(st.integers(-len(shape), len(shape) - 1))
        return Example(op, (shape,), {"axis": axis}, low=-1.0)
    weights = [shape[-1:]] * (2 if op == "LAYER_NORM" else 1)
    return Example(op, (shape, *weights), low=-1.0)


@st.composite
def windows(draw: st.DrawFn, ops: Sequence[str], spans: Sequence[tuple[int, int]] = (
        (1, 1), (2, 2), (3, 3), (3, 2)), steps: Sequence[int] = (1, 2)) -> Example:
    """Convolutions and pools: windows, strides, pads of both ends alike, dilations, groups."""
    op = draw(st.sampled_from(ops))
    window = draw(st.sampled_from(spans))
    size = tuple(draw(st.integers(5, 20)) for _ in range(2))
    pad = [draw(st.integers(0, w // 2)) for w in window]
    attrs = {"strides": [draw(st.sampled_from(steps))] * 2, "pads": [*pad, *pad]}
    batch, channels = draw(st.integers(1, 3)), draw(st.sampled_from([1, 4, 8, 16, 32]))
    x = batch, channels, *size
    if op != "CONV2D":
        return Example(op, (x,), {**attrs, "kernel_shape": window}, low=-1.0)
    group = draw(st.sampled_from(sorted({1, channels})))
    filters = group * draw(st.sampled_from([1, 8]))
    attrs |= {"dilations": [draw(st.integers(1, 2))] * 2, "group": group}
    return Example(op, (x, (filters, channels // group, *window), (filters,)), attrs, low=-1.0)


@st.composite
def resizes(draw: st.DrawFn) -> Example:
    """Images made larger and smaller."""
    size, wanted = (tuple(draw(st.integers(1, 24)) for _ in range(2)) for _ in range(2))
    mode = draw(st.sampled_from([("nearest", "asymmetric"), ("linear", "half_pixel"),
                                 ("linear", "align_corners"), ("cubic", "half_pixel")]))
    if mode[0] == "nearest":  # whole factors: which is nearest to a half depends on rounding
        wanted = tuple(n * draw(st.integers(1, 3)) for n in size)
    attrs = {"sizes": wanted, "axes": (2, 3), "mode": mode[0], "nearest_mode": "floor",
             "coordinate_transformation_mode": mode[1], "cubic_coeff_a": -0.75}
    return Example("RESIZE", ((draw(st.integers(1, 2)), 3, *size),), attrs, low=-1.0)


def fixed(count: int) -> settings:
    """Return settings of a test that draws the same examples each time, beside @seed(0)."""
    return settings(max_examples=count, database=None, deadline=None,
                    phases=[Phase.generate, Phase.shrink])


def draws(strategy: st.SearchStrategy[Example], count: int) -> list[Example]:
    """Return the examples that a test with @seed(0) and fixed(count) draws."""
    found = []

    @seed(0)
    @fixed(count)
    @given(strategy)
    def collect(example: Example) -> None:
        found.append(example)

    collect()
    return found
