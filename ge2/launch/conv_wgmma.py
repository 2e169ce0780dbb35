"""Launch rule of 16-bit convolutions by wgmma over padded lines: arrange, then multiply."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..compiler.ir.size import smaller
from ..compiler.kernels.conv_plans import conv_sizes, lines_plan
from ..compiler.kernels.conv_wgmma_plans import (
    SIDE,
    PaddedPlan,
    Stages,
    padded_plan,
    refuse_padded,
    shares_rows,
    stages_of,
)
from ..errors import Unsupported
from ..problem import Problem
from .conv import addend_slots, conv_problem, dense_operands, epilogue_context
from .conv_lines import (
    ALIGN_SLACK,
    CHUNK,
    arrange_checks,
    arrange_launches,
    filter_place,
    has_filter_lines,
)
from .elementwise import axes_fields, axes_value
from .gemm_wgmma import MAP_BYTES, ROW_BYTES
from .prepare import aligned
from .record import (
    WORKSPACE,
    ArgsBuilder,
    KernelSource,
    LaunchRecord,
    TensorMapSpec,
    args_checks,
    args_dtype,
)
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile


@lru_cache(maxsize=1)
def _layout() -> tuple[np.dtype[Any], int, str]:
    """Return the layout of Args, how many words fill it up to 64 bytes, and its checks."""
    pairs = [(name, "i4", (2,)) for name in ("extent", "pad", "dilation")]
    shape = args_dtype(("pixel", axes_fields(3)), ("step", axes_fields(3)), *pairs,
                       ("channels", "i4"), ("group_out", "i4"), ("box_rows", "i4"))
    fields: list[tuple[Any, ...]] = [
        ("map_a", "u8", (16,)), ("map_b", "u8", (16,)),
        *((name, "i8") for name in ("m", "n", "k", "batches")),
        *((name, "u8") for name in ("bias", "residual", "y")), ("shape", shape)]
    padding = -args_dtype(*fields).itemsize // 8 % 8
    if padding:
        fields.append(("unused", "i8", (padding,)))
    dtype = args_dtype(*fields)
    checks = "\n".join((args_checks(dtype), args_checks(shape, "ge2::ConvPadded")))
    return dtype, padding, checks


@dataclass(frozen=True, slots=True)
class PaddedRule:
    """conv2d_wgmma: two launches, the second of persistent blocks."""

    def prepares(self, problem: Problem, slot: int) -> bool:
        """Whether filters are brought into lines; see LaunchRule."""
        return has_filter_lines(problem, slot)

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if problem.outputs[0].size == 0:
            return []
        if refusal := refuse_padded(problem, variant, device):
            raise Unsupported(refusal, argument=variant.id, found=problem)
        plan, lines = padded_plan(problem, shares_rows(variant)), lines_plan(problem)
        stages = stages_of(plan, variant)
        bm, bn = int(variant.param("BM")), int(variant.param("BN"))
        consumers = 1 if variant.param("SCHEDULE") == "single" else 2
        _, padding, checks = _layout()
        context = tuple(sorted({
            **variant.param_map, **epilogue_context(problem), "PADDING": padding,
            "ARGS_CHECKS": "\n".join((arrange_checks(), checks)), "STAGES": stages.count,
            "STORES": 1, "TAPS": plan.step_taps, "HALO": stages.halo,
            "chunk_tile": lines.chunk_tile, "x_vector": lines.x_vector,
            "y_vector": _neighbours(problem),
        }.items()))
        arrange, product = (KernelSource(variant.kernel.template, context, entry)
                            for entry in variant.kernel.entries)
        made = arrange_launches(problem, arrange, (plan.rows, plan.columns),
                                aligned(plan.x_chunks * CHUNK))
        args, relocs = _args(problem, plan, stages)
        sizes = conv_sizes(problem)
        tiles = -(-sizes.group_out // bm) * sizes.groups * -(-plan.pixels // bn)
        return [*made, LaunchRecord(
            product, (smaller(tiles, device.sm_count), 1, 1), (128 * (1 + consumers), 1, 1),
            args, relocs, stages.count * (stages.nbytes + 16) + stages.stores + ALIGN_SLACK,
            tensor_maps=_maps(problem, plan, bm, stages.box), workspace=made[-1].workspace,
            pdl=True)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [
            conv_problem("f16", (2, 64, 9, 10), (72, 64, 3, 3), pads=(1, 1, 1, 1), act="gelu"),
            conv_problem("bf16", (1, 80, 8, 9), (128, 40, 3, 2), group=2, pads=(0, 2, 1, 0),
                         constant=(1,)),
        ]


def _neighbours(problem: Problem) -> int:
    """Return how many neighbours of a row of y are written at once: two where all rows allow it."""
    y = problem.outputs[0]
    even = y.shape[3] % 2 == 0 and lines_plan(problem).y_vector % 2 == 0
    return 2 if even else 1


def _args(problem: Problem, plan: PaddedPlan, stages: Stages) -> tuple[bytes, Any]:
    _, w, y = dense_operands(problem)
    sizes = conv_sizes(problem)
    shape = {
        "pixel": axes_value((y.shape[0], plan.rows, plan.columns)),
        "step": axes_value((w.shape[2] // plan.step_taps, w.shape[3], plan.depth)),
        "extent": y.shape[2:],
        "pad": cast("tuple[int, ...]", problem.attr_map["pads"])[:2],
        "dilation": problem.attr_map["dilations"],
        "channels": w.shape[0], "group_out": sizes.group_out,
        "box_rows": stages.box,
    }
    steps = plan.taps // plan.step_taps * plan.depth
    values = {"m": sizes.group_out, "n": plan.pixels, "k": steps * SIDE, "batches": sizes.groups,
              "shape": shape}
    return ArgsBuilder(_layout()[0], values, addend_slots(problem)).pack()


def _maps(problem: Problem, plan: PaddedPlan, bm: int, box: int) -> tuple[TensorMapSpec, ...]:
    """Return the maps of the filters [tap][filter][channel] and of x [group][pixel][channel]."""
    dtype, sizes = problem.outputs[0].dtype, conv_sizes(problem)
    line = plan.chunks * CHUNK
    return (
        TensorMapSpec(0, *filter_place(problem, aligned(plan.x_chunks * CHUNK)), dtype,
                      (plan.chunks * 8, sizes.groups * sizes.group_out, plan.taps),
                      (plan.taps * line, line), (SIDE, bm, 1), ROW_BYTES),
        TensorMapSpec(MAP_BYTES, WORKSPACE, 0, dtype,
                      (plan.chunks * 8, plan.pixels, sizes.groups),
                      (sizes.groups * line, line), (SIDE, box, 1), ROW_BYTES),
    )


RULES: dict[str, LaunchRule] = {"conv_wgmma.product": PaddedRule()}
