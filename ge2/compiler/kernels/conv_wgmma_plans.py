"""How convolutions run by wgmma over padded lines of channels: sizes, refusals and times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log2, prod
from typing import TYPE_CHECKING, cast

from ...problem import Problem
from ..ir.size import Size
from .conv_plans import LINES_RATE, conv_sizes, lines_plan
from .gemm_plans import START, STEP, epilogue_time, waves_time
from .walk import INT32_MAX

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile
    from .metadata import Variant

SIDE = 64  # channels of a step; fewer filters or channels leave half of it empty
_EVEN = 2  # so that two neighbouring pixels of y are neighbours in memory
_ATOM = 8  # pixels after which the swizzle of a tile begins anew
_BOX = 256  # the most pixels of a box
_LEAST_STAGES = 3  # for copies to stay ahead of products
_SHARED_BYTES = 232448 - 1024 - 256  # of a block on sm_90, less alignment and barriers
_STORE_BYTES = 2048  # of a warp, on the way to y
_ROW_BYTES = 128  # of a pixel or a filter in a tile


@dataclass(frozen=True, slots=True)
class PaddedPlan:
    """The product of a convolution over padded images.

    Attributes:
        rows, columns: of a padded image: zeros follow each row and each image, enough for the
            windows over them and over what comes next.
        pixels: of all padded images.
        step_taps: kernel rows that a stage serves: one, or all.
        halo: pixels that they read beyond those of a tile.
        chunks: of 8 channels, of a group.
        depth: steps of 64 channels of a group.
        taps: of a window.
        x_chunks, w_chunks: of all lines of x and of the filters.
    """

    rows: int
    columns: int
    pixels: int
    step_taps: int
    halo: int
    chunks: int
    depth: int
    taps: int
    x_chunks: int
    w_chunks: int


@lru_cache(maxsize=4096)
def padded_plan(problem: Problem, shared: bool) -> PaddedPlan:
    """Return the plan of a CONV2D problem whose windows step by 1.

    Args:
        problem: what to compute.
        shared: whether a stage serves all kernel rows.
    """
    x, w = problem.inputs[0], problem.inputs[1]
    assert x is not None and w is not None
    lines = lines_plan(problem)
    rows, columns = (x.shape[2 + axis] + _zeros(problem, axis) for axis in range(2))
    unit = _ATOM if shared else _EVEN
    columns = -(-columns // unit) * unit
    pixels = x.shape[0] * rows * columns
    taps = w.shape[2] if shared else 1
    dilation = cast("tuple[int, ...]", problem.attr_map["dilations"])[0]
    return PaddedPlan(rows, columns, pixels, taps, (taps - 1) * dilation * columns, lines.chunks,
                      -(-lines.chunks * 8 // SIDE), prod(w.shape[2:]),
                      pixels * conv_sizes(problem).groups * lines.chunks, lines.w_chunks)


def _zeros(problem: Problem, axis: int) -> int:
    """Return how many zeros follow along an axis: for either end, and for all outputs to fit."""
    w = problem.inputs[1]
    assert w is not None
    pads = cast("tuple[int, ...]", problem.attr_map["pads"])
    dilation = cast("tuple[int, ...]", problem.attr_map["dilations"])[axis]
    grown = pads[axis] + pads[2 + axis] - (w.shape[2 + axis] - 1) * dilation
    return max(pads[axis], pads[2 + axis], grown)


@dataclass(frozen=True, slots=True)
class Stages:
    """Stages of a block's ring.

    Attributes:
        halo: pixels that a stage has room for behind a tile's; a power of two, or 0.
        box: pixels of one copy.
        nbytes: of a stage.
        count: how many there are.
        stores: bytes behind them, for results on their way to y.
    """

    halo: int
    box: int
    nbytes: int
    count: int
    stores: int


def stages_of(plan: PaddedPlan, variant: Variant) -> Stages:
    """Return the stages of a variant's blocks."""
    bm, bn = int(variant.param("BM")), int(variant.param("BN"))
    consumers = 1 if variant.param("SCHEDULE") == "single" else 2
    halo = max(_BOX // 16, 1 << (plan.halo - 1).bit_length()) if plan.halo else 0
    boxes = -(-(bn + halo) // _BOX)
    box = -(-(bn + plan.halo) // (boxes * _ATOM)) * _ATOM
    nbytes = (plan.step_taps * bm + bn + halo) * _ROW_BYTES
    stores = consumers * 4 * _STORE_BYTES
    return Stages(halo, box, nbytes, min(8, (_SHARED_BYTES - stores) // nbytes), stores)


def shares_rows(variant: Variant) -> bool:
    """Return whether a stage of a variant serves all kernel rows."""
    return bool(variant.param("ROWS") == "shared")


def refuse_padded(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of conv2d_wgmma."""
    w, sizes = problem.inputs[1], conv_sizes(problem)
    assert w is not None
    if problem.attr_map["strides"] != (1, 1):
        return "windows that step by more than 1 would leave most pixels without an output"
    if lines_plan(problem).planar:
        return "windows of 1 x 1 are read where they are, without lines"
    if sizes.group_out < SIDE or w.shape[1] < SIDE // 2:
        return "too few channels for a tile"
    plan = padded_plan(problem, shares_rows(variant))
    if shares_rows(variant):
        if w.shape[2] == 1:
            return "there is one kernel row"
        if isinstance(plan.halo, Size):
            return "what kernel rows share depends on the exact width"
        if stages_of(plan, variant).count < _LEAST_STAGES:
            return "no room for three stages of all kernel rows"
    reach = 2**20 + 2 * plan.columns * plan.rows  # of a tile behind the last pixel and its windows
    fits = max(plan.x_chunks, plan.w_chunks, plan.pixels + reach) <= INT32_MAX
    return "" if fits else "more than 2**31 chunks or pixels"


def padded_preference(problem: Problem, variant: Variant, device: DeviceProfile) -> float:
    """Return score points on the scale of conv2d_lines: six for each factor of two in time.

    Both bring x into lines first; what is compared is the product behind that.
    """
    plan, sizes = padded_plan(problem, shares_rows(variant)), conv_sizes(problem)
    schedule = str(variant.param("SCHEDULE"))
    bm, bn = int(variant.param("BM")), int(variant.param("BN"))
    tiles = -(-sizes.group_out // bm) * sizes.groups * -(-plan.pixels // bn)
    busy = plan.taps * plan.depth * _step_time(variant, bm, bn)
    time = START + waves_time(schedule, ceil(tiles / device.sm_count), busy,
                              epilogue_time(schedule, bm, bn))
    useful = max(sizes.group_out * sizes.groups * sizes.pixels * sizes.taps, 1) / device.sm_count
    return 10.0 - 6.0 * log2(time * LINES_RATE / useful)


def _step_time(variant: Variant, bm: int, bn: int) -> float:
    """Return the microseconds of 64 channels of a tap.

    With a copy of both tiles for each it is what the same tile takes in a matrix product. Where
    taps share most of a copy, only products are left, at the rate of the largest tile there.
    """
    if shares_rows(variant):
        return STEP["cooperative", 128, 256] * bm * bn / (128 * 256)
    return STEP[str(variant.param("SCHEDULE")), bm, bn]
