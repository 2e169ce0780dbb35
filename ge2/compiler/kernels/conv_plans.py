"""Sizes of convolutions that guards, scores and launch rules share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from ...problem import Problem
from .walk import INT32_MAX

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile
    from .metadata import Variant

PIXELS = 128  # of a block of the implicit-GEMM kernels


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


def refuse_conv(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of all conv2d kernels: pixels and taps are counted in 31 bits."""
    sizes = conv_sizes(problem)
    fits = max(sizes.pixels, sizes.taps) <= INT32_MAX - 256
    return "" if fits else "more than 2**31 pixels or taps"


def conv_preference(problem: Problem, variant: Variant, device: DeviceProfile) -> float:
    """Return score points: how much of a tile is useful, and whether blocks fill the device."""
    sizes = conv_sizes(problem)
    rows = variant.param_map.get("BM")
    if not isinstance(rows, int):
        # A thread per output reads x once for each channel of the group.
        return 30.0 if sizes.group_out <= 2 else 0.0 if sizes.group_out <= 4 else -30.0
    tiles = -(-sizes.group_out // rows)
    useful = sizes.group_out / (tiles * rows)
    blocks = tiles * sizes.groups * -(-sizes.pixels // PIXELS)
    busy = min(1.0, blocks / device.sm_count)
    return 5.0 * (rows >= 64) + 3.0 * (rows >= 128) - 40.0 * (1 - useful) - 15.0 * (1 - busy)
