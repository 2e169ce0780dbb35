"""Expressions rebuilt with other leaves or in a wider precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ....contract import FLOAT8_MAX
from .bundle import ExprBundle
from .node import Expr, Number, binary, cast, const, input, scalar, select, unary, walk


def substitute(outputs: Sequence[Expr], replace: Mapping[int, Expr]) -> tuple[Expr, ...]:
    """Return outputs with input i replaced by replace[i], where given.

    Raises:
        Invalid: a replacement has another dtype than the input.
    """
    def leaf(node: Expr) -> Expr:
        return replace.get(int(node.value), node) if node.kind == "input" else node

    return _rebuild(outputs, leaf, lambda target: target)


def widen(bundle: ExprBundle) -> ExprBundle:
    """Return the bundle computed in f64 instead of f32, without rounding points of floats."""
    def leaf(node: Expr) -> Expr:
        if node.dtype != "f32":
            return node
        if node.kind == "const":
            return const(node.value, "f64")
        return (input if node.kind == "input" else scalar)(int(node.value), "f64")

    def target(name: str) -> str:
        return "f64" if name in ("f32", "f16", "bf16", *FLOAT8_MAX) else name

    return ExprBundle(_rebuild(bundle.outputs, leaf, target))


def inputs_of(outputs: Iterable[Expr]) -> list[int]:
    """Return the input indices that outputs read, ascending."""
    return sorted({int(e.value) for e in walk(outputs) if e.kind == "input"})


def constant(expr: Expr) -> Number | None:
    """Return the value of a constant expression, or None."""
    return expr.value if expr.kind == "const" else None


def _rebuild(outputs: Sequence[Expr], leaf: Callable[[Expr], Expr],
             target: Callable[[str], str]) -> tuple[Expr, ...]:
    done: dict[Expr, Expr] = {}
    for node in walk(outputs):
        args = [done[arg] for arg in node.args]
        if not args:
            done[node] = leaf(node)
        elif node.kind == "cast":
            done[node] = cast(args[0], target(node.op))
        else:
            done[node] = rebuild_node(node, args)
    return tuple(done[node] for node in outputs)


def rebuild_node(node: Expr, args: Sequence[Expr]) -> Expr:
    """Return the node with other arguments; a leaf stays as it is."""
    if not args:
        return node
    if node.kind == "cast":
        return cast(args[0], node.op)
    if node.kind == "select":
        return select(args[0], args[1], args[2])
    return unary(node.op, args[0]) if node.kind == "unary" else binary(node.op, args[0], args[1])
