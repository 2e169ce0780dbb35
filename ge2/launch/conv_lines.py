"""Launch rule of 16-bit convolutions over lines of channels: arrange, then multiply."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..compiler.kernels.conv_plans import conv_sizes, lines_plan, pair_lead
from ..contract import DTYPES
from ..problem import Problem
from .conv import addend_slots, conv_problem, dense_operands, epilogue_context
from .elementwise import axes_fields, axes_value
from .record import (
    WORKSPACE,
    ArgsBuilder,
    KernelSource,
    LaunchRecord,
    args_checks,
    args_dtype,
    prepared,
)
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

_ARRANGE_THREADS = 256
ALIGN_SLACK = 1024  # shared_memory() rounds its base up
CHUNK = 16  # bytes
_FILTERS = 1  # slot


@lru_cache(maxsize=1)
def _lines_dtype() -> np.dtype[Any]:
    pairs = [(name, "i4", (2,))
             for name in ("extent", "pitch", "columns", "step", "pad", "dilation")]
    counts = [(name, "i4")
              for name in ("pixels", "chunks", "groups", "group_in", "group_out", "lead")]
    return args_dtype(("pixel", axes_fields(3)), ("chunk", axes_fields(3)),
                      ("plane", axes_fields(2)), ("x_plane", axes_fields(2)),
                      ("x_pixel", axes_fields(3)), *counts, *pairs)


@lru_cache(maxsize=1)
def _arrange_dtype() -> np.dtype[Any]:
    return args_dtype(("x", "u8"), ("w", "u8"), ("x_lines", "u8"), ("w_lines", "u8"),
                      ("shape", _lines_dtype()))


@lru_cache(maxsize=1)
def _product_dtype() -> np.dtype[Any]:
    return args_dtype(("x", "u8"), ("w", "u8"), ("bias", "u8"), ("residual", "u8"), ("y", "u8"),
                      ("shape", _lines_dtype()))


@lru_cache(maxsize=1)
def arrange_checks() -> str:
    """Return the checks of ArrangeArgs and of ConvLines."""
    return "\n".join((args_checks(_arrange_dtype(), "ArrangeArgs"),
                      args_checks(_lines_dtype(), "ge2::ConvLines")))


def _shape_value(problem: Problem, pitch: tuple[int, int]) -> Any:
    x, w, y = dense_operands(problem)
    sizes, plan = conv_sizes(problem), lines_plan(problem)
    steps = cast("tuple[int, ...]", problem.attr_map["strides"])
    top, left = cast("tuple[int, ...]", problem.attr_map["pads"])[:2]
    lead = 0
    if plan.paired:
        lead = pair_lead(problem)
        left, steps = (left - lead) // 2, (steps[0], 1)
    return {
        "pixel": axes_value((y.shape[0], *y.shape[2:])),
        "chunk": axes_value((w.shape[2], plan.window, plan.chunks)),
        "plane": axes_value((y.shape[0], prod(y.shape[2:]))),
        "x_plane": axes_value((x.shape[0], prod(x.shape[2:]))),
        "x_pixel": axes_value((x.shape[0], x.shape[2], plan.width)),
        "pixels": sizes.pixels, "chunks": w.shape[2] * plan.window * plan.chunks,
        "groups": sizes.groups, "group_in": w.shape[1], "group_out": sizes.group_out,
        "lead": lead, "extent": (x.shape[2], plan.width), "pitch": pitch,
        "columns": (x.shape[3], w.shape[3]), "step": steps, "pad": (top, left),
        "dilation": problem.attr_map["dilations"],
    }


@dataclass(frozen=True, slots=True)
class LinesRule:
    """conv2d_lines: two launches, one where windows are 1 x 1."""

    def prepares(self, problem: Problem, slot: int) -> bool:
        """Whether filters are brought into lines; see LaunchRule."""
        return has_filter_lines(problem, slot)

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if problem.outputs[0].size == 0:
            return []
        plan = lines_plan(problem)
        rows, pixels = int(variant.param("CHANNELS")), int(variant.param("PIXELS"))
        threads = 128 * int(variant.param("SPLIT"))
        checks = "\n".join((arrange_checks(), args_checks(_product_dtype())))
        context = tuple(sorted({
            **variant.param_map, **epilogue_context(problem), "ARGS_CHECKS": checks,
            "threads": threads, "planar": "true" if plan.planar else "false",
            "paired": "true" if plan.paired else "false",
            "chunk_tile": plan.chunk_tile, "x_vector": plan.x_vector, "y_vector": plan.y_vector,
        }.items()))
        arrange, product = (KernelSource(variant.kernel.template, context, entry)
                            for entry in variant.kernel.entries)
        x, _, _ = dense_operands(problem)
        pitch = x.shape[2], x.shape[3]
        made = [] if plan.planar else arrange_launches(
            problem, arrange, pitch, plan.x_chunks * CHUNK)
        sizes = conv_sizes(problem)
        tiles = -(-sizes.group_out // rows) * sizes.groups * -(-sizes.pixels // pixels)
        slots = {"x": (0, 0), "w": (1, 0), **addend_slots(problem)}
        if not plan.planar:
            slots.update(x=(WORKSPACE, 0), w=filter_place(problem, plan.x_chunks * CHUNK))
        args, relocs = ArgsBuilder(_product_dtype(), {"shape": _shape_value(problem, pitch)},
                                   slots).pack()
        smem = int(variant.param("STAGES")) * (rows + pixels) * 128 + ALIGN_SLACK
        return [*made, LaunchRecord(product, (tiles, 1, 1), (threads, 1, 1), args, relocs, smem,
                                    workspace=made[-1].workspace if made else 0,
                                    pdl=not plan.planar)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [
            conv_problem("f16", (2, 16, 9, 11), (72, 16, 3, 3), pads=(1, 1, 1, 1), act="gelu"),
            conv_problem("bf16", (1, 12, 16, 16), (24, 6, 3, 2), group=2, strides=(2, 1),
                         constant=(_FILTERS,)),
            conv_problem("f16", (2, 24, 8, 10), (40, 24, 1, 1), act="relu"),
            conv_problem("f16", (2, 3, 9, 12), (40, 3, 5, 7), strides=(2, 2), pads=(2, 3, 2, 3)),
        ]


def has_filter_lines(problem: Problem, slot: int) -> bool:
    """Whether an input is filters that 16-bit convolutions bring into lines."""
    w = problem.inputs[_FILTERS]
    return (slot == _FILTERS and w is not None and w.dtype in ("f16", "bf16")
            and w.is_dense and not lines_plan(problem).planar)


def filter_place(problem: Problem, begin: int) -> tuple[int, int]:
    """Return slot and offset of the filters' lines: behind those of x, or on their own."""
    return (prepared(_FILTERS), 0) if _FILTERS in problem.constant else (WORKSPACE, begin)


def arrange_launches(problem: Problem, source: KernelSource, pitch: tuple[int, int], begin: int
                     ) -> list[LaunchRecord]:
    """Return the launches that bring x and the filters into lines: one, or two where the filters
    are constant.

    Args:
        source: a kernel for both.
        pitch: rows and columns of an image in lines.
        begin: bytes of the lines of x, behind which those of the filters begin.
    """
    plan = lines_plan(problem)
    x, _, _ = dense_operands(problem)
    apart = _FILTERS in problem.constant
    shape, slots = _shape_value(problem, pitch), {"x": (0, 0), "x_lines": (WORKSPACE, 0)}
    if apart:
        shape["group_out"] = 0  # no filters to the threads that find no pixel
    else:
        slots.update(w=(_FILTERS, 0), w_lines=(WORKSPACE, begin))
    args, relocs = ArgsBuilder(_arrange_dtype(), {"shape": shape}, slots).pack()
    pixels = 512 // plan.chunk_tile  # of a block
    w_chunks = 0 if apart else plan.w_chunks
    blocks = (-(-plan.chunks // plan.chunk_tile) * conv_sizes(problem).groups
              * -(-x.shape[0] * prod(x.shape[2:]) // pixels))
    blocks += -(-w_chunks // _ARRANGE_THREADS)
    if plan.paired:
        blocks = -(-(plan.x_chunks + w_chunks) // _ARRANGE_THREADS)
    smem = 8 * plan.chunk_tile * (pixels + 1) * 2 + ALIGN_SLACK
    workspace = begin + w_chunks * CHUNK
    both = LaunchRecord(source, (blocks, 1, 1), (_ARRANGE_THREADS, 1, 1), args, relocs, smem,
                        workspace=workspace)
    return [_filter_launch(problem), both] if apart else [both]


def _filter_launch(problem: Problem) -> LaunchRecord:
    """Return the launch for filters alone: the same for all kernels and all sizes of x."""
    _, w, _ = dense_operands(problem)
    sizes, plan = conv_sizes(problem), lines_plan(problem)
    shape = {
        "chunk": axes_value((w.shape[2], plan.window, plan.chunks)),
        "groups": sizes.groups, "group_in": w.shape[1], "group_out": sizes.group_out,
        "columns": (0, w.shape[3]),
    }
    args, relocs = ArgsBuilder(_arrange_dtype(), {"shape": shape}, {
        "w": (_FILTERS, 0), "w_lines": (prepared(_FILTERS), 0)}).pack()
    context = (("ARGS_CHECKS", arrange_checks()), ("paired", plan.paired),
               ("type", DTYPES[w.dtype].c_type))
    return LaunchRecord(
        KernelSource("conv/filter_lines.j2", context, "conv2d_filter_lines"),
        (-(-plan.w_chunks // _ARRANGE_THREADS), 1, 1), (_ARRANGE_THREADS, 1, 1), args, relocs,
        ALIGN_SLACK, prepares=_FILTERS, prepared=plan.w_chunks * CHUNK)


RULES: dict[str, LaunchRule] = {"conv_lines.mma": LinesRule()}
