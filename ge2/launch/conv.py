"""Launch rules of 2-d convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..compiler.ir.expr import ExprBundle
from ..compiler.kernels.conv_plans import PIXELS, conv_sizes
from ..compiler.opdefs.gemm_epilogue import gemm_epilogue
from ..contract import DTYPES
from ..errors import Unsupported
from ..problem import Problem, TensorSpec
from .elementwise import axes_fields, axes_value, index_types, only_narrow, rendered
from .record import ArgsBuilder, KernelSource, LaunchRecord, args_checks, args_dtype
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

_THREADS = 256
_ALIGN_SLACK = 1024  # shared_memory() rounds its base up


@lru_cache(maxsize=1)
def _layout() -> tuple[np.dtype[Any], str]:
    pairs = [(name, "i4", (2,)) for name in ("extent", "step", "pad", "dilation")]
    shape = args_dtype(("pixel", axes_fields(3)), ("tap", axes_fields(3)), ("pixels", "i4"),
                       ("taps", "i4"), ("groups", "i4"), ("group_out", "i4"), *pairs)
    dtype = args_dtype(("x", "u8"), ("w", "u8"), ("bias", "u8"), ("residual", "u8"),
                       ("y", "u8"), ("shape", shape))
    return dtype, args_checks(dtype) + "\n" + args_checks(shape, "ge2::ConvShape")


def conv_epilogue(problem: Problem) -> ExprBundle:
    """Return the expression over the sum of products (input 0), bias (1) and residual (2)."""
    given = problem.attr_map.get("epilogue")
    if isinstance(given, ExprBundle):
        return given
    bias, residual = conv_addends(problem)
    dtypes = (bias.dtype if bias else None, residual.dtype if residual else None)
    slope = cast("float", problem.attr_map["leaky_slope"])
    return gemm_epilogue(problem.outputs[0].dtype, dtypes, 1.0, 1.0,
                         str(problem.attr_map["act"]), slope)


def conv_addends(problem: Problem) -> tuple[TensorSpec | None, TensorSpec | None]:
    """Return the specs of bias and residual."""
    bias, residual = (*problem.inputs[2:], None, None)[:2]
    return bias, residual


def dense_operands(problem: Problem) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Return x, w and y.

    Raises:
        Unsupported: a tensor is not dense.
    """
    x, w, y = problem.inputs[0], problem.inputs[1], problem.outputs[0]
    bias, residual = conv_addends(problem)
    assert x is not None and w is not None
    if not (x.is_dense and w.is_dense and y.is_dense):
        raise Unsupported("a convolution takes dense tensors", found=(x.strides, w.strides))
    if residual is not None and not residual.is_dense:
        raise Unsupported("a convolution takes a dense residual", found=residual.strides)
    if bias is not None and bias.strides not in ((1,), (0,)) and bias.size > 1:
        raise Unsupported("a convolution takes a dense bias", found=bias.strides)
    return x, w, y


def epilogue_context(problem: Problem) -> dict[str, Any]:
    """Return the template's constants about element types and the epilogue."""
    bias, residual = conv_addends(problem)
    dtype = problem.outputs[0].dtype
    lines, results = rendered(conv_epilogue(problem), 3, fast=only_narrow(problem.outputs))
    return {"type": DTYPES[dtype].c_type, "has_bias": bias is not None,
            "has_residual": residual is not None,
            "bias_type": DTYPES[bias.dtype if bias else dtype].c_type,
            "lines": lines, "results": results}


def addend_slots(problem: Problem) -> dict[str, tuple[int, int]]:
    """Return field -> (slot, addend) of y and of what is added."""
    slots = {"y": (len(problem.inputs), 0)}
    present = zip(("bias", "residual"), conv_addends(problem), strict=True)
    slots.update({name: (2 + i, 0) for i, (name, spec) in enumerate(present) if spec is not None})
    return slots


def _record(problem: Problem, variant: Variant, context: dict[str, Any], blocks: int,
            threads: int, smem: int) -> LaunchRecord:
    x, w, y = dense_operands(problem)
    sizes = conv_sizes(problem)
    pads = cast("tuple[int, ...]", problem.attr_map["pads"])
    dtype, checks = _layout()
    shape = {
        "pixel": axes_value((y.shape[0], *y.shape[2:])), "tap": axes_value(w.shape[1:]),
        "pixels": sizes.pixels, "taps": sizes.taps, "groups": sizes.groups,
        "group_out": sizes.group_out, "extent": x.shape[2:], "pad": pads[:2],
        "step": problem.attr_map["strides"], "dilation": problem.attr_map["dilations"],
    }
    full = {
        **variant.param_map, **context, **epilogue_context(problem),
        "acc": "double" if x.dtype == "f64" else "float", "offset": _offset(problem),
        "ARGS_CHECKS": checks,
    }
    slots = {"x": (0, 0), "w": (1, 0), **addend_slots(problem)}
    args, relocs = ArgsBuilder(dtype, {"shape": shape}, slots).pack()
    source = KernelSource(variant.kernel.template, tuple(sorted(full.items())),
                          variant.kernel.name)
    return LaunchRecord(source, (blocks, 1, 1), (threads, 1, 1), args, relocs, smem)


def _offset(problem: Problem) -> str:
    # A window's corner may lie before the tensor by as much as the padding.
    reach = max(t.size for t in problem.tensors if t is not None)
    pads = cast("tuple[int, ...]", problem.attr_map["pads"])
    x = problem.inputs[0]
    assert x is not None
    return index_types(1, reach + (max(pads) + 1) * (x.shape[-1] + 1))[1]


def _tiles(problem: Problem, rows: int) -> int:
    sizes = conv_sizes(problem)
    return -(-sizes.group_out // rows) * sizes.groups * -(-sizes.pixels // PIXELS)


@dataclass(frozen=True, slots=True)
class SimtRule:
    """conv2d_implicit."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if problem.outputs[0].size == 0:
            return []
        rows, depth = variant.param("BM"), variant.param("BK")
        acc = 8 if problem.outputs[0].dtype == "f64" else 4
        tap = 12 if _offset(problem) == "int" else 16
        shared = 2 * ((rows + 4 + PIXELS) * depth * acc + depth * tap)
        return [_record(problem, variant, {"shared_bytes": shared}, _tiles(problem, rows),
                        _THREADS, shared + _ALIGN_SLACK)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [
            conv_problem("f32", (2, 5, 9, 11), (20, 5, 3, 3), pads=(1, 1, 1, 1)),
            conv_problem("bf16", (1, 8, 12, 12), (24, 4, 3, 2), group=2, strides=(2, 1),
                         act="relu"),
            conv_problem("f64", (1, 3, 8, 8), (4, 3, 2, 2), dilations=(2, 2), bias=False),
        ]


@dataclass(frozen=True, slots=True)
class MmaRule:
    """conv2d_implicit_tc."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if problem.outputs[0].size == 0:
            return []
        rows, depth = variant.param("BM"), 32
        tap = 12 if _offset(problem) == "int" else 16
        shared = 2 * ((rows * (depth + 8) + depth * (PIXELS + 8)) * 2 + depth * tap)
        return [_record(problem, variant, {"shared_bytes": shared}, _tiles(problem, rows),
                        _THREADS, shared + _ALIGN_SLACK)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [
            conv_problem("f16", (2, 16, 9, 11), (72, 16, 3, 3), pads=(1, 1, 1, 1), act="gelu"),
            conv_problem("bf16", (1, 12, 16, 16), (24, 6, 3, 2), group=2, strides=(2, 1)),
        ]


@dataclass(frozen=True, slots=True)
class DirectRule:
    """conv2d_direct."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if problem.outputs[0].size == 0:
            return []
        sizes, threads = conv_sizes(problem), variant.param("THREADS")
        blocks = sizes.groups * sizes.group_out * -(-sizes.pixels // threads)
        return [_record(problem, variant, {}, blocks, threads, 0)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [
            conv_problem("f32", (2, 6, 9, 11), (6, 1, 3, 3), group=6, pads=(1, 0, 1, 2)),
            conv_problem("f16", (1, 4, 8, 8), (8, 1, 3, 3), group=4, dilations=(2, 1),
                         act="silu"),
        ]


def conv_problem(dtype: str, x: tuple[int, ...], w: tuple[int, ...], *, group: int = 1,
                 strides: tuple[int, int] = (1, 1), pads: tuple[int, ...] = (0, 0, 0, 0),
                 dilations: tuple[int, int] = (1, 1), bias: bool = True, act: str = "none",
                 constant: tuple[int, ...] = ()) -> Problem:
    """Return a CONV2D problem on dense tensors."""
    outs = [(x[2 + i] + pads[i] + pads[2 + i] - (w[2 + i] - 1) * dilations[i] - 1) // strides[i] + 1
            for i in range(2)]
    inputs = (TensorSpec.dense(dtype, x), TensorSpec.dense(dtype, w),
              TensorSpec.dense(dtype, w[:1]) if bias else None)
    return Problem("CONV2D", inputs, (TensorSpec.dense(dtype, (x[0], w[0], *outs)),), (
        ("act", act), ("dilations", dilations), ("group", group), ("leaky_slope", 0.01),
        ("pads", pads), ("strides", strides)), constant)


RULES: dict[str, LaunchRule] = {
    "conv.simt": SimtRule(),
    "conv.mma": MmaRule(),
    "conv.direct": DirectRule(),
}
