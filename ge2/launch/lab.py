"""Launch rule of the two-kernel test operator: workspace, semaphores and a tensor map in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..problem import Problem, TensorSpec
from .lab_compose import COMPOSE_RULES
from .lab_primitives import PRIMITIVE_RULES
from .record import (
    SEMAPHORES,
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

THREADS = 256
TILE = (32, 64)  # rows, columns
ALIGNMENT_SLACK = 1024

# A tensor map makes the struct's size a multiple of 64; the tail is spelled out for NumPy.
ADD_ARGS = args_dtype(("x", "u8", 16), ("partials", "u8"), ("ticket", "u8"), ("rows", "i8"),
                      ("columns", "i8"), ("unused", "i8", 4))
DIVIDE_ARGS = args_dtype(("x", "u8"), ("y", "u8"), ("total", "u8"), ("rows", "i8"),
                         ("columns", "i8"), ("row_stride_x", "i8"), ("row_stride_y", "i8"))


@dataclass(frozen=True, slots=True)
class NormalizeSumRule:
    """Y = X / sum(X) for f32 X of shape [rows, columns]: add up, then divide."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return both launches; see LaunchRule."""
        x, y = problem.inputs[0], problem.outputs[0]
        assert x is not None
        if x.size == 0:
            return []
        tiles = -(-x.shape[0] // TILE[0]) * -(-x.shape[1] // TILE[1])
        blocks = min(tiles, 2 * device.sm_count)
        sources = _sources(variant)
        return [self._add(x, blocks, int(variant.param("STAGES")), sources[0]),
                self._divide(x, y, blocks, device, sources[1])]

    def _add(self, x: TensorSpec, blocks: int, stages: int, source: KernelSource) -> LaunchRecord:
        offset = int(np.dtype(ADD_ARGS).fields["x"][1])  # type: ignore[index]
        args, relocs = ArgsBuilder(
            ADD_ARGS, {"rows": x.shape[0], "columns": x.shape[1]},
            {"partials": (WORKSPACE, 0), "ticket": (SEMAPHORES, 0)}).pack()
        # The stride of a single row means nothing, but the driver checks it.
        pitch = x.strides[0] * 4 if x.shape[0] > 1 else -(-x.shape[1] * 4 // 16) * 16
        tensor = TensorMapSpec(offset, 0, 0, "f32", (x.shape[1], x.shape[0]), (pitch,),
                               (TILE[1], TILE[0]))
        smem = stages * (TILE[0] * TILE[1] * 4 + 8) + THREADS * 4 + 8 + ALIGNMENT_SLACK
        return LaunchRecord(source, (blocks, 1, 1), (THREADS, 1, 1), args, relocs, smem,
                            tensor_maps=(tensor,), workspace=4 * (blocks + 1), semaphores=1)

    def _divide(self, x: TensorSpec, y: TensorSpec, blocks: int, device: DeviceProfile,
                source: KernelSource) -> LaunchRecord:
        args, relocs = ArgsBuilder(
            DIVIDE_ARGS,
            {"rows": x.shape[0], "columns": x.shape[1], "row_stride_x": x.strides[0],
             "row_stride_y": y.strides[0]},
            {"x": (0, 0), "y": (1, 0), "total": (WORKSPACE, 4 * blocks)}).pack()
        grid = min(x.shape[0] * -(-x.shape[1] // THREADS), 8 * device.sm_count)
        return LaunchRecord(source, (grid, 1, 1), (THREADS, 1, 1), args, relocs,
                            workspace=4 * (blocks + 1))

    def examples(self, variant: Variant) -> list[Problem]:
        """Return one problem: the source has no classes."""
        spec = TensorSpec.dense("f32", (100, 200))
        return [Problem("LAB_NORMALIZE_SUM", (spec,), (spec,))]


@lru_cache(maxsize=16)
def _sources(variant: Variant) -> tuple[KernelSource, KernelSource]:
    checks = "\n".join((args_checks(ADD_ARGS, "AddArgs"), args_checks(DIVIDE_ARGS, "DivideArgs")))
    context = tuple(sorted({"ARGS_CHECKS": checks, **dict(variant.params)}.items()))
    kernel = variant.kernel
    add, divide = (KernelSource(kernel.template, context, entry) for entry in kernel.entries)
    return add, divide


RULES: Mapping[str, LaunchRule] = {"lab.normalize_sum": NormalizeSumRule(), **PRIMITIVE_RULES,
                                  **COMPOSE_RULES}
