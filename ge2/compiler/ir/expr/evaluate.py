"""Expressions on NumPy arrays: the reference of every kernel that renders them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....contract import FLOAT8_MAX, numpy_dtype
from ..scalar_ops import SCALAR_OPS
from .node import ROUNDING, Expr, walk

Array = npt.NDArray[Any]


def evaluate(outputs: Sequence[Expr], inputs: Sequence[npt.ArrayLike | None],
             coords: Sequence[npt.ArrayLike] = (), scalars: Sequence[npt.ArrayLike] = (),
             ) -> list[Array]:
    """Return one array per output, in the compute dtype of its expression.

    Args:
        outputs: expressions.
        inputs: arrays that broadcast together, converted to each leaf's dtype; None where unused.
        coords: index arrays, one per axis.
        scalars: run-time scalars.
    """
    leaves = {"input": inputs, "coord": coords, "scalar": scalars}
    order = walk(outputs)
    readers = _last_readers(order)
    values: dict[Expr, Array] = {}
    kept = set(outputs)
    with np.errstate(all="ignore"):
        for position, node in enumerate(order):
            args = [values[arg] for arg in node.args]
            values[node] = _apply(node, args, leaves)
            for arg in set(node.args):
                if readers[arg] == position and arg not in kept:
                    del values[arg]
    return [values[node] for node in outputs]


def _last_readers(order: Sequence[Expr]) -> dict[Expr, int]:
    return {arg: i for i, node in enumerate(order) for arg in node.args}


def _apply(node: Expr, args: list[Array], leaves: dict[str, Sequence[Any]]) -> Array:
    dtype = numpy_dtype(node.dtype)
    if node.kind in leaves:
        return np.asarray(leaves[node.kind][int(node.value)]).astype(dtype, copy=False)
    if node.kind == "const":
        return np.asarray(node.value, dtype)
    if node.kind == "select":
        return np.where(args[0], args[1], args[2])
    if node.kind == "cast":
        return _cast(args[0], node.op)
    return np.asarray(SCALAR_OPS[node.op].numpy(*args)).astype(dtype, copy=False)


def _cast(x: Array, target: str) -> Array:
    dtype = numpy_dtype(target)
    if x.dtype.kind == "f" and dtype.kind in "iu":
        x = _truncate(x, "i8" if target == "i64" else "i4")
    if target in FLOAT8_MAX:
        x = np.clip(x.astype(np.float32), -FLOAT8_MAX[target], FLOAT8_MAX[target])
    result = x.astype(dtype)
    return result.astype(numpy_dtype(ROUNDING[target])) if target in ROUNDING else result


def _truncate(x: Array, code: str) -> Array:
    limits = np.iinfo(code)
    low, high = -float(limits.max) - 1.0, float(limits.max)
    inside = np.where((x > low) & (x < high), x, 0).astype(code)
    return np.where(x >= high, limits.max, np.where(x <= low, limits.min, inside)).astype(code)
