"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...contract import AttrSpec
from ..ir.nodes import TensorType
from .opdef import ALL, FLOATS, NUMERIC, Array, Arrays, Builder, OpDef, Types
from .shapes import axes_of, tensor

AXES = AttrSpec("axes", "ints", None, doc="axes to reduce; all when absent")
KEEPDIMS = AttrSpec("keepdims", "bool", True, doc="keep reduced axes with extent 1")
NOOP = AttrSpec("noop_with_empty_axes", "bool", False, doc="empty axes reduce nothing")


def reduced_axes(op: str, attrs: dict[str, Any], rank: int) -> tuple[int, ...]:
    """Return the axes that a reduction runs over, ascending."""
    axes = attrs["axes"]
    if not axes:
        return () if attrs["noop_with_empty_axes"] else tuple(range(rank))
    return tuple(sorted(axes_of(op, axes, rank)))


def _infer(op: str) -> Callable[[Types, dict[str, Any]], list[TensorType]]:
    def infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        x = tensor(types, 0)
        axes = reduced_axes(op, attrs, x.rank)
        if attrs["keepdims"]:
            shape = tuple(1 if i in axes else e for i, e in enumerate(x.shape))
        else:
            shape = tuple(e for i, e in enumerate(x.shape) if i not in axes)
        return [TensorType(x.dtype, shape)]

    return infer


Kernel = Callable[[Array, tuple[int, ...]], Array]


def _reference(op: str, kernel: Kernel) -> Callable[[Arrays, dict[str, Any]], list[Array]]:
    def reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
        x = arrays[0]
        assert x is not None
        axes = reduced_axes(op, attrs, x.ndim)
        result = np.asarray(kernel(x, axes))
        return [result if attrs["keepdims"] else np.squeeze(result, axis=axes)]

    return reference


def lowest(dtype: np.dtype[Any]) -> Any:
    """Return the identity of max."""
    return False if dtype.kind == "b" else (-np.inf if dtype.kind == "f" else np.iinfo(dtype).min)


def highest(dtype: np.dtype[Any]) -> Any:
    """Return the identity of min."""
    return True if dtype.kind == "b" else (np.inf if dtype.kind == "f" else np.iinfo(dtype).max)


def _sum(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(np.sum(x, axis=axes, keepdims=True))


def mean_over(x: Array, axes: tuple[int, ...]) -> Array:
    """Return the mean over axes, kept with extent 1; integers truncate."""
    count = int(np.prod([x.shape[axis] for axis in axes]))
    total = _sum(x, axes)
    if x.dtype.kind == "f":
        return np.asarray(total / x.dtype.type(count))
    if not count:
        return total
    # Integers divide toward zero, as the device does.
    return np.asarray(np.sign(total) * (np.abs(total) // count))


def max_over(x: Array, axes: tuple[int, ...]) -> Array:
    """Return the maximum over axes, kept with extent 1; of nothing the lowest value."""
    return np.asarray(np.max(x, axis=axes, keepdims=True, initial=lowest(x.dtype)))


def _min(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(np.min(x, axis=axes, keepdims=True, initial=highest(x.dtype)))


def _logsumexp(x: Array, axes: tuple[int, ...]) -> Array:
    top = max_over(x, axes)
    # exp(inf - inf) is NaN: an infinite maximum is the answer itself.
    shift = np.where(np.isinf(top), x.dtype.type(0), top)
    return np.asarray(np.log(_sum(np.exp(x - shift), axes)) + shift)


def _chain(*steps: str) -> Callable[[Builder, Sequence[str], dict[str, Any]], Sequence[str]]:
    """Decompose into elementwise steps around one reduction, named with a leading REDUCE_."""

    def decompose(builder: Builder, inputs: Sequence[str], attrs: dict[str, Any]) -> Sequence[str]:
        value = inputs[0]
        for step in steps:
            if step == "SQUARE":
                value = builder.op("MUL", value, value)
            else:
                value = builder.op(step, value, **(attrs if step.startswith("REDUCE") else {}))
        return [value]

    return decompose


def _through_integers(op: str) -> Callable[..., Sequence[str] | None]:
    """Decompose a reduction of bool into one of i32; others stay."""

    def decompose(builder: Builder, inputs: Sequence[str],
                  attrs: dict[str, Any]) -> Sequence[str] | None:
        if builder.type(inputs[0]).dtype != "bool":
            return None
        numbers = builder.op("CAST", inputs[0], to="i32")
        result = builder.op(op, numbers, **attrs)
        # Of nothing i32 gives its lowest or highest value; bool False or True.
        limit = builder.constant(np.asarray(0, np.int32))
        return [builder.op("GREATER", result, limit)]

    return decompose


def _op(name: str, kernel: Kernel, doc: str, *, dtypes: tuple[str, ...] = FLOATS,
        steps: tuple[str, ...] = (), properties: tuple[str, ...] = ()) -> OpDef:
    return OpDef(name, ("x",), 1, (AXES, KEEPDIMS, NOOP), _infer(name), _reference(name, kernel),
                 properties=frozenset({"mergeable", "commutative", "associative",
                                       "rematerializable", "prologue", "epilogue", *properties}),
                 family="row", dtypes=dtypes, doc=doc, decompose=_chain(*steps) if steps else (
                     _through_integers(name) if "bool" in dtypes else None))


OPDEFS = (
    _op("REDUCE_SUM", _sum, "Sum over axes.", dtypes=NUMERIC, properties=("linear",)),
    _op("REDUCE_MEAN", mean_over, "Mean over axes; of nothing NaN; integers truncate.",
        dtypes=NUMERIC, properties=("linear",)),
    _op("REDUCE_MAX", max_over, "Maximum over axes; NaN propagates; of nothing the lowest value.",
        dtypes=ALL),
    _op("REDUCE_MIN", _min, "Minimum over axes; NaN propagates; of nothing the highest value.",
        dtypes=ALL),
    _op("REDUCE_PROD", lambda x, axes: np.asarray(np.prod(x, axis=axes, keepdims=True)),
        "Product over axes.", dtypes=NUMERIC),
    _op("REDUCE_L1", lambda x, axes: _sum(np.abs(x), axes), "Sum of absolute values over axes.",
        dtypes=NUMERIC, steps=("ABS", "REDUCE_SUM")),
    _op("REDUCE_L2", lambda x, axes: np.asarray(np.sqrt(_sum(x * x, axes))),
        "Square root of the sum of squares over axes.",
        steps=("SQUARE", "REDUCE_SUM", "SQRT")),
    _op("REDUCE_SUMSQUARE", lambda x, axes: _sum(x * x, axes), "Sum of squares over axes.",
        dtypes=NUMERIC, steps=("SQUARE", "REDUCE_SUM")),
    _op("REDUCE_LOGSUM", lambda x, axes: np.asarray(np.log(_sum(x, axes))),
        "Logarithm of the sum over axes.", steps=("REDUCE_SUM", "LOG")),
    _op("REDUCE_LOGSUMEXP", _logsumexp,
        "Logarithm of the sum of exponentials over axes, without overflow."),
)
