"""Launch rule of 2-d pools."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..compiler.ir.scalar_ops import C_TYPES
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


@dataclass(frozen=True, slots=True)
class PoolRule:
    """pool2d: one output per thread; x of any strides, y dense."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        x, y = problem.inputs[0], problem.outputs[0]
        assert x is not None
        if y.size == 0:
            return []
        kind = str(problem.attr_map["kind"])
        if kind == "max" and x.dtype not in _LOWEST:
            raise Unsupported("no maximum over windows of this type", found=x.dtype)
        kernel, steps, dilations = (
            cast("tuple[int, int]", problem.attr_map[name])
            for name in ("kernel_shape", "strides", "dilations"))
        pads = cast("tuple[int, ...]", problem.attr_map["pads"])
        extent = x.shape[2:]
        begins, ends = pads[:2], pads[2:]
        # What ceil mode adds beyond the declared padding never counts.
        counted = [(-b, n + e) if problem.attr_map["count_include_pad"] else (0, n)
                   for b, e, n in zip(begins, ends, extent, strict=True)]
        linear, offset = index_types(y.size, x.max_offset)
        dtype, checks = _layout()
        compute = DTYPES[x.dtype].compute
        context = {
            **variant.param_map, "kind": kind, "type": DTYPES[x.dtype].c_type,
            "compute": C_TYPES[compute], "linear": linear, "offset": offset,
            "lowest": _LOWEST[x.dtype] if kind == "max" else "0", "ARGS_CHECKS": checks,
        }
        values = {
            "size": y.size, "axes": axes_value(y.shape), "stride": x.strides, "extent": extent,
            "kernel": kernel, "step": steps, "pad": begins, "dilation": dilations,
            "counted_from": [low for low, _ in counted],
            "counted_to": [high for _, high in counted],
        }
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


RULES: dict[str, LaunchRule] = {"pool": PoolRule()}
