"""Derivatives of expressions by reverse accumulation, so that shared parts stay shared."""

from __future__ import annotations

from ....errors import Invalid
from ..scalar_ops import KINDS, SCALAR_OPS
from .node import Expr, const, select, walk

Partial = Expr | float | None


def differentiate(expr: Expr, wrt: int) -> Expr:
    """Return the derivative of expr with respect to input wrt, an expression over the same leaves.

    Rounding casts count as the identity. At a kink the derivative of the branch that the kernel
    takes is used (relu'(0) is 0).

    Raises:
        Invalid: a primitive on the way has no derivative.
    """
    adjoint: dict[Expr, Expr] = {expr: const(1.0, expr.dtype)}
    total: Expr | None = None
    depends = _dependents(expr, wrt)
    for node in reversed(walk([expr])):
        seed = adjoint.get(node)
        if seed is None:
            continue
        if node.kind == "input" and node.value == wrt:
            total = seed
        for arg, partial in zip(node.args, _partials(node), strict=True):
            if partial is None or arg not in depends or KINDS[arg.dtype] != "f":
                continue
            term = _times(seed, partial, node, arg)
            adjoint[arg] = adjoint[arg] + term if arg in adjoint else term
    return const(0.0, expr.dtype) if total is None else total


def _dependents(expr: Expr, wrt: int) -> set[Expr]:
    found: set[Expr] = set()
    for node in walk([expr]):
        if (node.kind == "input" and node.value == wrt) or any(a in found for a in node.args):
            found.add(node)
    return found


def _partials(node: Expr) -> tuple[Partial, ...]:
    if node.kind == "select":
        return (None, 1.0, 1.0)  # the condition is applied in _times
    if node.kind == "cast":
        return (1.0,)
    if not node.args:
        return ()
    rule = SCALAR_OPS[node.op].derivative
    if rule is None:
        raise Invalid(f"{node.op} has no derivative")
    return rule(*node.args, node)[: len(node.args)]


def _times(seed: Expr, partial: Expr | float, node: Expr, arg: Expr) -> Expr:
    """Return seed * partial, without multiplications by one, in arg's dtype."""
    from .node import cast

    if node.kind == "select":
        zero = const(0.0, seed.dtype)
        yes, no = (arg is node.args[1], arg is node.args[2])
        return select(node.args[0], seed if yes else zero, seed if no else zero)
    if node.kind == "cast":
        return cast(seed, arg.dtype)
    if not isinstance(partial, Expr):
        return seed if partial == 1.0 else -seed if partial == -1.0 else seed * partial
    if partial.dtype != seed.dtype:  # a table row that chooses between numbers
        partial = cast(partial, seed.dtype)
    if seed.kind == "const" and seed.value == 1.0:
        return partial
    return seed * partial
