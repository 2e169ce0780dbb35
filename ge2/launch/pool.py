"""Launch rule of 2-d pools."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..compiler.ir.scalar_ops import C_TYPES
from ..compiler.kernels.pool_plans import PatchPlan, patch_plan
from ..contract import DTYPES
from ..errors import Unsupported
from ..problem import Problem, TensorSpec
from .elementwise import axes_fields, axes_value, index_types
from .record import ArgsBuilder, KernelSource, LaunchRecord, args_checks, args_dtype
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

_LOWEST = {"f32": "-ge2::inf_f32()", "f16": "-ge2::inf_f32()", "bf16": "-ge2::inf_f32()",
           "f64": "-ge2::inf_f64()", "u8": "0", "i8": "-128", "i32": "(-2147483647 - 1)"}


@lru_cache(maxsize=1)
def _layout() -> tuple[np.dtype[Any], str]:
    pairs = [(name, "i4", (2,)) for name in (
        "extent", "kernel", "step", "pad", "dilation", "counted_from", "counted_to")]
    dtype = args_dtype(("x", "u8"), ("y", "u8"), ("size", "i8"), ("axes", axes_fields(4)),
                       ("stride", "i8", (4,)), *pairs)
    return dtype, args_checks(dtype)


@lru_cache(maxsize=1)
def _window_layout() -> tuple[np.dtype[Any], str]:
    pairs = [(name, "i4", (2,)) for name in (
        "extent", "out", "pad", "counted_from", "counted_to")]
    dtype = args_dtype(("x", "u8"), ("y", "u8"), ("threads", "i8"), ("walk", axes_fields(3)),
                       *pairs)
    return dtype, args_checks(dtype)


def _types(problem: Problem) -> dict[str, Any]:
    """Return the template's constants about element types.

    Raises:
        Unsupported: there is no smallest value to start a maximum from.
    """
    dtype, kind = problem.outputs[0].dtype, str(problem.attr_map["kind"])
    if kind == "max" and dtype not in _LOWEST:
        raise Unsupported("no maximum over windows of this type", found=dtype)
    return {"kind": kind, "type": DTYPES[dtype].c_type, "compute": C_TYPES[DTYPES[dtype].compute],
            "lowest": _LOWEST[dtype] if kind == "max" else "0"}


def _window(problem: Problem) -> dict[str, tuple[int, ...]]:
    attrs = problem.attr_map
    names = {"kernel": "kernel_shape", "step": "strides", "dilation": "dilations"}
    window = {name: cast("tuple[int, ...]", attrs[theirs]) for name, theirs in names.items()}
    return {**window, "pad": cast("tuple[int, ...]", attrs["pads"])[:2]}


def _counted(problem: Problem) -> dict[str, list[int]]:
    """Return the positions that the divisor of a mean counts, as [from, to) per axis.

    What ceil mode adds beyond the declared padding never counts.
    """
    x = problem.inputs[0]
    assert x is not None
    pads = cast("tuple[int, ...]", problem.attr_map["pads"])
    wide = bool(problem.attr_map["count_include_pad"])
    return {"counted_from": [-pads[i] if wide else 0 for i in range(2)],
            "counted_to": [n + pads[2 + i] if wide else n for i, n in enumerate(x.shape[2:])]}


@dataclass(frozen=True, slots=True)
class PoolRule:
    """pool2d: one output per thread; x of any strides, y dense."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        x, y = problem.inputs[0], problem.outputs[0]
        assert x is not None
        if y.size == 0:
            return []
        window = _window(problem)
        linear, offset = index_types(y.size, x.max_offset)
        dtype, checks = _layout()
        context = {**variant.param_map, **_types(problem), "linear": linear, "offset": offset,
                   "ARGS_CHECKS": checks}
        values = {"size": y.size, "axes": axes_value(y.shape), "stride": x.strides,
                  "extent": x.shape[2:], **window, **_counted(problem)}
        args, relocs = ArgsBuilder(dtype, values, {"x": (0, 0), "y": (1, 0)}).pack()
        threads = variant.param("THREADS")
        source = KernelSource(variant.kernel.template, tuple(sorted(context.items())),
                              variant.kernel.name)
        return [LaunchRecord(source, (-(-y.size // threads), 1, 1), (threads, 1, 1), args, relocs)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [
            pool_problem("max", "f32", (2, 3, 9, 10)),
            pool_problem("avg", "bf16", (1, 2, 8, 8), include_pad=True),
            pool_problem("max", "i8", (1, 1, 5, 5), ceil=True),
            pool_problem("avg", "f64", (1, 2, 6, 7), ceil=True),
        ]


def _centre(problem: Problem, plan: PatchPlan) -> int:
    """Return the column of a patch where an aligned vector of x starts; -1 where none does."""
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    window = _window(problem)
    step, pad = window["step"][1], window["pad"][1]
    own = plan.columns * step
    nbytes = own * DTYPES[x.dtype].itemsize
    patch = (plan.columns - 1) * step + (window["kernel"][1] - 1) * window["dilation"][1] + 1
    fits = (own in (2, 4, 8) and nbytes <= 16 and pad + own <= patch and x.align % nbytes == 0
            and x.shape[3] % own == 0 and y.shape[3] * step <= x.shape[3])
    return pad if fits else -1


@dataclass(frozen=True, slots=True)
class WindowRule:
    """pool2d_window: a patch of outputs per thread; x and y dense."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        x, y = problem.inputs[0], problem.outputs[0]
        assert x is not None
        if y.size == 0:
            return []
        plan = patch_plan(problem)
        assert plan is not None
        walk = (y.shape[0] * y.shape[1], -(-y.shape[2] // plan.rows),
                -(-y.shape[3] // plan.columns))
        count, threads = prod(walk), int(variant.param("THREADS"))
        linear, offset = index_types(count + threads, max(x.size, y.size) + x.shape[3] * 64)
        dtype, checks = _window_layout()
        window = _window(problem)
        size = DTYPES[y.dtype].itemsize
        whole = y.shape[3] % plan.columns == 0 and y.align % (plan.columns * size) == 0
        context = {
            **variant.param_map, **_types(problem), "centre": _centre(problem, plan),
            "kernel": window["kernel"],
            "step": window["step"], "dilation": window["dilation"], "rows": plan.rows,
            "columns": plan.columns, "whole": whole, "narrow": y.dtype in ("f16", "bf16"),
            "linear": linear, "offset": offset, "ARGS_CHECKS": checks,
        }
        values = {"threads": count, "walk": axes_value(walk), "extent": x.shape[2:],
                  "out": y.shape[2:], "pad": window["pad"], **_counted(problem)}
        args, relocs = ArgsBuilder(dtype, values, {"x": (0, 0), "y": (1, 0)}).pack()
        source = KernelSource(variant.kernel.template, tuple(sorted(context.items())),
                              variant.kernel.name)
        return [LaunchRecord(source, (-(-count // threads), 1, 1), (threads, 1, 1), args, relocs)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [
            pool_problem("max", "f16", (2, 3, 17, 18), kernel=(3, 3), strides=(2, 2),
                         pads=(1, 1, 1, 1), dilations=(1, 1)),
            pool_problem("avg", "bf16", (1, 2, 16, 16), kernel=(3, 3), strides=(1, 1),
                         pads=(1, 1, 1, 1), dilations=(1, 1), include_pad=True),
            pool_problem("max", "i8", (1, 1, 5, 5), ceil=True),
            pool_problem("avg", "f64", (1, 2, 6, 7), ceil=True),
        ]


def pool_problem(kind: str, dtype: str, shape: tuple[int, ...], *, kernel: tuple[int, int] = (3, 2),
                 strides: tuple[int, int] = (2, 1), pads: tuple[int, ...] = (1, 0, 1, 1),
                 dilations: tuple[int, int] = (1, 2), include_pad: bool = False,
                 ceil: bool = False) -> Problem:
    """Return a POOL2D problem on dense tensors."""
    outs = []
    for i in range(2):
        room = shape[2 + i] + pads[i] + pads[2 + i] - (kernel[i] - 1) * dilations[i] - 1
        out = (-(-room // strides[i]) if ceil else room // strides[i]) + 1
        if ceil and (out - 1) * strides[i] >= shape[2 + i] + pads[i]:
            out -= 1
        outs.append(out)
    return Problem("POOL2D", (TensorSpec.dense(dtype, shape),),
                   (TensorSpec.dense(dtype, (*shape[:2], *outs)),), (
        ("count_include_pad", include_pad), ("dilations", dilations), ("kernel_shape", kernel),
        ("kind", kind), ("pads", pads), ("strides", strides)))


RULES: dict[str, LaunchRule] = {"pool": PoolRule(), "pool.window": WindowRule()}
