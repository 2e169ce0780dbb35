"""Shape arithmetic at import: rules on known values whose elements may be symbolic extents.

A rule raises Undecided (or gives None) where the answer depends on what is not known; then the
operator runs like any other.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import helper

from ...compiler.ir.dim import Dim, Extent
from .call import Call
from .values import Undecided, extents, larger, quotient, same

Array = npt.NDArray[Any]
Rule = Callable[[Call], "Array | list[Array]"]

# On elements of any kind: only their places change.
MOVES: dict[str, Rule] = {}
# On numbers and symbolic extents.
ARITHMETIC: dict[str, Rule] = {}


def _in(table: dict[str, Rule], *names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            table[name] = rule
        return rule

    return register


def _given(call: Call, index: int = 0) -> Array:
    array = call.known(index)
    if array is None:
        raise Undecided
    return array


def _ints(values: list[Any] | None) -> list[int] | None:
    if values is not None and any(isinstance(v, Dim) for v in values):
        raise Undecided
    return values


def _binary(name: str, function: Callable[[Extent, Extent], Any]) -> None:
    apply = np.frompyfunc(function, 2, 1)

    def rule(call: Call) -> Array:
        if call.n_inputs == 1:
            return _given(call)
        total = _given(call)
        for index in range(1, call.n_inputs):
            total = np.asarray(apply(_python(total), _python(_given(call, index))), object)
        return total

    ARITHMETIC[name] = rule


def _python(array: Array) -> Array:
    """Return elements as Python numbers, which mix with Dims."""
    return array.astype(object)


def _smaller(a: Extent, b: Extent) -> Extent:
    return b if larger(a, b) is a or same(larger(a, b), a) else a


for _name, _function in (("Add", operator.add), ("Sub", operator.sub), ("Mul", operator.mul),
                         ("Div", quotient), ("Max", larger), ("Min", _smaller),
                         ("Equal", same)):
    _binary(_name, _function)


@_in(MOVES, "Identity")
def _identity(call: Call) -> Array:
    return _given(call)


@_in(MOVES, "Cast")
def _cast(call: Call) -> Array:
    array = _given(call)
    dtype = helper.tensor_dtype_to_np_dtype(call.attrs["to"])
    if array.dtype == object:
        if dtype.kind not in "iu":
            raise Undecided
        return array
    if array.dtype.kind not in "iub" or dtype.kind not in "iufb":
        raise Undecided  # rounding and saturation are the operator's business
    return array.astype(dtype)


@_in(MOVES, "Concat")
def _concat(call: Call) -> Array:
    arrays = [_given(call, i) for i in range(call.n_inputs)]
    return np.concatenate(arrays, axis=call.attrs["axis"])


@_in(MOVES, "Gather")
def _gather(call: Call) -> Array:
    indices = _given(call, 1)
    if indices.dtype == object:
        raise Undecided
    return np.take(_given(call), indices, axis=call.attrs.get("axis", 0))


@_in(MOVES, "Slice")
def _slice(call: Call) -> Array:
    array = _given(call)
    starts, ends = (_ints(call.attr_or_list(n, i)) for n, i in (("starts", 1), ("ends", 2)))
    assert starts is not None and ends is not None
    axes = _ints(call.attr_or_list("axes", 3)) or list(range(len(starts)))
    steps = _ints(call.elements(4)) or [1] * len(starts)
    cut: list[Any] = [slice(None)] * array.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        whole = step < 0 and end <= -array.shape[axis] - 1
        cut[axis] = slice(start, None if whole else end, step)
    return np.asarray(array[tuple(cut)])


@_in(MOVES, "Squeeze")
def _squeeze(call: Call) -> Array:
    axes = _ints(call.attr_or_list("axes", 1))
    return np.squeeze(_given(call), None if axes is None else tuple(axes))


@_in(MOVES, "Unsqueeze")
def _unsqueeze(call: Call) -> Array:
    axes = _ints(call.attr_or_list("axes", 1))
    assert axes is not None
    return np.expand_dims(_given(call), tuple(axes))


@_in(MOVES, "Reshape")
def _reshape(call: Call) -> Array:
    array, shape = _given(call), _ints(call.attr_or_list("shape", 1))
    assert shape is not None
    if not call.attrs.get("allowzero"):
        shape = [array.shape[i] if e == 0 else e for i, e in enumerate(shape)]
    return array.reshape(shape)


@_in(MOVES, "Transpose")
def _transpose(call: Call) -> Array:
    return _given(call).transpose(call.attrs.get("perm"))


@_in(MOVES, "Expand")
def _expand(call: Call) -> Array:
    array, shape = _given(call), _ints(call.elements(1))
    return np.broadcast_to(array, np.broadcast_shapes(array.shape, tuple(shape or ())))


@_in(MOVES, "Split")
def _split(call: Call) -> list[Array]:
    array, axis = _given(call), call.attrs.get("axis", 0)
    sizes = _ints(call.attr_or_list("split", 1))
    if sizes is None:
        step = -(-array.shape[axis] // len(call.wanted))
        sizes = [step] * (len(call.wanted) - 1)
        sizes.append(array.shape[axis] - sum(sizes))
    return np.split(array, np.cumsum(sizes)[:-1], axis=axis)


@_in(MOVES, "Where")
def _where(call: Call) -> Array:
    condition, x, y = (_given(call, i) for i in range(3))
    if condition.dtype == object:
        raise Undecided
    return np.where(condition, x, y)


@_in(ARITHMETIC, "Neg")
def _neg(call: Call) -> Array:
    return np.asarray(-_given(call), object)


@_in(ARITHMETIC, "ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")
def _reduce(call: Call) -> Array:
    """Only whole vectors: what exporters reduce shapes by."""
    array = _given(call)
    axes = _ints(call.attr_or_list("axes", 1))
    if array.ndim != 1 or (axes is not None and axes not in ([0], [-1])):
        raise Undecided
    items = list(_python(array))
    if call.op == "ReduceProd":
        result: Any = math.prod(items)
    elif call.op == "ReduceSum":
        result = sum(items)
    else:
        result = items[0]
        for item in items[1:]:
            result = (larger if call.op == "ReduceMax" else _smaller)(result, item)
    made = np.empty((1,) if call.attrs.get("keepdims", 1) else (), object)
    made[...] = result
    return made


def shape_of(call: Call) -> Array:
    """Return what Shape gives: the extents from start to end."""
    shape = call.type(0).shape
    rank = len(shape)
    start, end = call.attrs.get("start", 0), call.attrs.get("end", rank)
    return extents(shape[slice(start, end)])


def size_of(call: Call) -> Array:
    """Return what Size gives: the number of elements."""
    made = np.empty((), object)
    made[...] = math.prod(call.type(0).shape)
    return made
