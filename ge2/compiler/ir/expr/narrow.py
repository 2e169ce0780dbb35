"""Coordinates in 32 bits where nothing can overflow: half the registers, cheap conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..scalar_ops import SCALAR_OPS
from .node import Expr, cast, const, walk
from .rewrite import rebuild_node

_LIMIT = 2**31
# Operators of integers whose magnitude follows from those of their operands.
_GROWTH: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a + b, "mul": lambda a, b: a * b,
    "max": max, "min": max, "neg": lambda a: a, "abs": lambda a: a,
}


def narrow_coordinates(outputs: Sequence[Expr], bound: int) -> tuple[Expr, ...]:
    """Return outputs of the same value with i32 in place of i64 between coordinates.

    Args:
        outputs: expressions; those of i64 stay i64.
        bound: every coordinate is below it.
    """
    small: dict[Expr, tuple[Expr, int]] = {}  # i64 node -> the same in i32, largest magnitude
    done: dict[Expr, Expr] = {}
    for node in walk(outputs):
        made = _narrowed(node, small, bound)
        if made is not None:
            small[node] = made
            done[node] = cast(made[0], "i64")
        elif _compares(node) and all(arg in small for arg in node.args):
            done[node] = rebuild_node(node, [small[arg][0] for arg in node.args])
        elif node.kind == "cast" and node.args[0] in small:
            done[node] = cast(small[node.args[0]][0], node.op)
        else:
            done[node] = rebuild_node(node, [done[arg] for arg in node.args])
    return tuple(done[node] for node in outputs)


def _narrowed(node: Expr, small: dict[Expr, tuple[Expr, int]],
              bound: int) -> tuple[Expr, int] | None:
    """Return an i64 node as i32 and its largest magnitude; None where it may not fit."""
    if node.dtype != "i64":
        return None
    if node.kind == "coord":
        return (cast(node, "i32"), bound) if bound < _LIMIT else None
    if node.kind == "const":
        fits = abs(node.value) < _LIMIT
        return (const(node.value, "i32"), int(abs(node.value))) if fits else None
    grow = _GROWTH.get(node.op)
    if grow is None or not all(arg in small for arg in node.args):
        return None
    size = int(grow(*(small[arg][1] for arg in node.args)))
    if size >= _LIMIT:
        return None
    return rebuild_node(node, [small[arg][0] for arg in node.args]), size


def _compares(node: Expr) -> bool:
    return (node.kind == "binary" and node.dtype == "bool" and SCALAR_OPS[node.op].result == "bool"
            and node.args[0].dtype == "i64")
