"""Sizes of convolutions that guards, scores and launch rules share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log2, prod
from typing import TYPE_CHECKING

from ...problem import Problem
from ..ir.size import common_divisor
from .walk import INT32_MAX

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile
    from .metadata import Variant

PIXELS = 128  # of a block of the implicit-GEMM kernels
# Multiply-adds of a multiprocessor in a microsecond of conv2d_lines' product, as its score counts
# them, on an H200: what puts the times of other kernels on the same scale.
LINES_RATE = 1.25e6


@dataclass(frozen=True, slots=True)
class ConvSizes:
    """The product that a convolution is: [group_out, taps] x [taps, pixels] for each group."""

    groups: int
    group_out: int
    taps: int
    pixels: int


@lru_cache(maxsize=4096)
def conv_sizes(problem: Problem) -> ConvSizes:
    """Return the sizes of a CONV2D problem."""
    w, y = problem.inputs[1], problem.outputs[0]
    assert w is not None
    groups = problem.attr_map["group"]
    assert isinstance(groups, int)
    return ConvSizes(groups, w.shape[0] // groups, prod(w.shape[1:]),
                     y.shape[0] * prod(y.shape[2:]))


@dataclass(frozen=True, slots=True)
class LinesPlan:
    """How a 16-bit convolution runs over lines of channels.

    Attributes:
        planar: windows of 1 x 1 that step by 1: x is read as it is, without lines.
        paired: windows of up to 4 channels that step by 2 columns: a chunk holds two columns.
        width: chunks of a row of x, for each chunk of a group's channels.
        window: the same of a row of a filter.
        chunks: 16-byte chunks of a group's channels.
        chunk_tile: how many of them a block of the arranging kernel takes.
        x_vector, y_vector: neighbours of a plane that are read and written at once.
        x_chunks, w_chunks: chunks of all lines of x and of the filters.
    """

    planar: bool
    paired: bool
    width: int
    window: int
    chunks: int
    chunk_tile: int
    x_vector: int
    y_vector: int
    x_chunks: int
    w_chunks: int


@lru_cache(maxsize=4096)
def lines_plan(problem: Problem) -> LinesPlan:
    """Return the plan of a CONV2D problem on 16-bit tensors."""
    x, w, y = problem.inputs[0], problem.inputs[1], problem.outputs[0]
    assert x is not None and w is not None
    attrs, sizes = problem.attr_map, conv_sizes(problem)
    x_plane, y_plane = prod(x.shape[2:]), prod(y.shape[2:])
    channels = w.shape[1]
    chunks = -(-channels // 8)
    aligned = [y.align, *(t.align for t in problem.inputs[3:] if t is not None)]
    planar = (w.shape[2:] == (1, 1) and attrs["strides"] == (1, 1) and not any(attrs["pads"])  # type: ignore[arg-type]
              and channels % 8 == 0 and x_plane % 8 == 0 and x.align == w.align == 16)
    paired = (channels <= 4 and sizes.groups == 1 and w.shape[3] > 1
              and attrs["strides"][1] == 2 and attrs["dilations"][1] == 1)  # type: ignore[index]
    width, window = x.shape[3], w.shape[3]
    if paired:
        width, window = (width + pair_lead(problem) + 1) // 2, (window + 1) // 2
    return LinesPlan(
        planar, paired, width, window, chunks, min(8, 1 << (chunks - 1).bit_length()),
        common_divisor(min(8, x.align // 2), max(x_plane, 1)),
        common_divisor(min(8, min(aligned) // 2), max(y_plane, 1)),
        x.shape[0] * x.shape[2] * width * sizes.groups * chunks,
        w.shape[0] * w.shape[2] * window * chunks)


def pair_lead(problem: Problem) -> int:
    """Return the zero columns before x in lines of column pairs: windows begin with a pair."""
    return problem.attr_map["pads"][1] % 2  # type: ignore[index, no-any-return]


def refuse_lines(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of conv2d_lines: chunks are counted in 31 bits, too."""
    plan = lines_plan(problem)
    fits = max(plan.x_chunks, plan.w_chunks) <= INT32_MAX - 2**20
    return refuse_conv(problem, variant, device) or ("" if fits else "more than 2**31 chunks")


def refuse_conv(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of all conv2d kernels: pixels and taps are counted in 31 bits."""
    sizes = conv_sizes(problem)
    fits = max(sizes.pixels, sizes.taps) <= INT32_MAX - 256
    return "" if fits else "more than 2**31 pixels or taps"


def conv_preference(problem: Problem, variant: Variant, device: DeviceProfile) -> float:
    """Return score points: how much of a tile is useful, and whether blocks fill the device."""
    sizes = conv_sizes(problem)
    if "CHANNELS" in variant.param_map:
        return _lines_preference(problem, variant, device)
    rows = variant.param_map.get("BM")
    if not isinstance(rows, int):
        # A thread per output reads x once for each channel of the group.
        return 30.0 if sizes.group_out <= 2 else 0.0 if sizes.group_out <= 4 else -30.0
    tiles = -(-sizes.group_out // rows)
    useful = sizes.group_out / (tiles * rows)
    blocks = tiles * sizes.groups * -(-sizes.pixels // PIXELS)
    busy = min(1.0, blocks / device.sm_count)
    return 5.0 * (rows >= 64) + 3.0 * (rows >= 128) - 40.0 * (1 - useful) - 15.0 * (1 - busy)


def _lines_preference(problem: Problem, variant: Variant, device: DeviceProfile) -> float:
    """Six points for each factor of two by which the tiles' time exceeds a perfect split."""
    sizes, plan = conv_sizes(problem), lines_plan(problem)
    rows, pixels = int(variant.param("CHANNELS")), int(variant.param("PIXELS"))
    tiles = -(-sizes.group_out // rows) * sizes.groups * -(-sizes.pixels // pixels)
    filters = max(sizes.groups * sizes.group_out, 1)
    depth = -(-plan.w_chunks // filters * 8 // 64) * 64
    # Per product, small tiles read more operands.
    traffic = 1.0 + 16.0 / rows + 16.0 / pixels
    spent = -(-tiles // device.sm_count) * rows * pixels * depth * traffic
    useful = max(sizes.group_out * sizes.groups * sizes.pixels * sizes.taps, 1) / device.sm_count
    # Arranging costs a launch, which small convolutions do not earn back.
    small = 0.0 if plan.planar else 25.0 * (useful < 2e4)
    # More warps for a tile, where a multiprocessor has no second one. With two or three, eight
    # warps a tile were a fifth slower than four (H200).
    few = tiles <= device.sm_count
    warps = 3.0 if (variant.param("SPLIT") == 2) == few else 0.0
    return 10.0 - 6.0 * log2(max(spent / useful, 1.0)) - small + warps
