"""Launch rule of padding."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..contract import DTYPES, numpy_dtype
from ..problem import Problem, TensorSpec
from .elementwise import axes_fields, axes_value, index_types
from .movement import WORDS
from .record import ArgsBuilder, KernelSource, LaunchRecord, args_checks, args_dtype
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

_VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis, or several neighbours that are not padded."""

    size: int
    stride: int
    low: int
    high: int

    @property
    def padded(self) -> bool:
        return self.low != 0 or self.high != 0


def _collapsed(x: TensorSpec, pads: tuple[int, ...]) -> list[_Axis]:
    """Return x's axes, outermost first, neighbours merged where padding and strides allow."""
    rank = len(x.shape)
    merged: list[_Axis] = []
    for axis in range(rank):
        one = _Axis(x.shape[axis], x.strides[axis], pads[axis], pads[rank + axis])
        if one.size == 1 and not one.padded:
            continue
        last = merged[-1] if merged else None
        if last and not last.padded and not one.padded and last.stride == one.stride * one.size:
            merged[-1] = _Axis(last.size * one.size, one.stride, 0, 0)
        else:
            merged.append(one)
    return merged or [_Axis(1, 1, 0, 0)]


@lru_cache(maxsize=64)
def _layout(rank: int) -> tuple[np.dtype[Any], str]:
    dtype = args_dtype(("x", "u8"), ("y", "u8"), ("size", "i8"), ("axes", axes_fields(rank)),
                       ("stride", "i8", (rank,)), ("extent", "i8", (rank,)),
                       ("low", "i8", (rank,)), ("fill", "u8"))
    return dtype, args_checks(dtype)


def _bits(value: float, dtype: str) -> int:
    """Return the bits of an element, as an unsigned number."""
    element = np.asarray(value).astype(numpy_dtype(dtype))
    return int.from_bytes(element.tobytes(), "little")


@dataclass(frozen=True, slots=True)
class PadRule:
    """pad: one thread makes 16 bytes of y; x of any strides."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        x, y = problem.inputs[0], problem.outputs[0]
        assert x is not None
        if y.size == 0:
            return []
        axes = _collapsed(x, cast("tuple[int, ...]", problem.attr_map["pads"]))
        itemsize = DTYPES[y.dtype].itemsize
        vector = max(min(_VECTOR_BYTES, y.align) // itemsize, 1)
        reach = max(sum(abs(a.stride) * a.size for a in axes),
                    *(a.size + abs(a.low) + abs(a.high) for a in axes))
        linear, offset = index_types(y.size + vector, reach)
        dtype, checks = _layout(len(axes))
        context = {
            **variant.param_map, "rank": len(axes), "vector": vector, "type": WORDS[itemsize],
            "linear": linear, "offset": offset, "mode": problem.attr_map["mode"],
            "ARGS_CHECKS": checks,
        }
        values = {
            "size": y.size, "axes": axes_value([a.size + a.low + a.high for a in axes]),
            "stride": [a.stride for a in axes], "extent": [a.size for a in axes],
            "low": [a.low for a in axes],
            "fill": _bits(cast("float", problem.attr_map["value"]), y.dtype),
        }
        args, relocs = ArgsBuilder(dtype, values, {"x": (0, 0), "y": (1, 0)}).pack()
        threads = int(variant.param("THREADS"))
        source = KernelSource(variant.kernel.template, tuple(sorted(context.items())),
                              variant.kernel.name)
        blocks = -(-y.size // (threads * vector))
        return [LaunchRecord(source, (blocks, 1, 1), (threads, 1, 1), args, relocs)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [
            pad_problem(TensorSpec.dense("f32", (5, 7)), (1, 2, 0, 3), value=1.5),
            pad_problem(TensorSpec.dense("f16", (2, 3, 8, 6)), (0, 0, 2, 1, 0, 0, 1, 3),
                        mode="reflect"),
            pad_problem(TensorSpec("i64", (4, 6), (1, 4)), (-1, 2, 1, -2), mode="edge"),
            pad_problem(TensorSpec.dense("u8", (9,)), (4, 20), mode="wrap"),
        ]


def pad_problem(x: TensorSpec, pads: tuple[int, ...], *, mode: str = "constant",
                value: float = 0.0) -> Problem:
    """Return the PAD problem of an input with a dense output."""
    rank = len(x.shape)
    shape = tuple(n + pads[i] + pads[rank + i] for i, n in enumerate(x.shape))
    return Problem("PAD", (x,), (TensorSpec.dense(x.dtype, shape),), (
        ("mode", mode), ("pads", pads), ("value", value)))


RULES: dict[str, LaunchRule] = {"pad": PadRule()}
