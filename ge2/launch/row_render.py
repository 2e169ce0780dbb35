"""A row operator's declaration as the values that kernels/row/operator.j2 is rendered with."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..compiler.ir.expr import Expr, render_c
from ..compiler.ir.expr.cheaper import cheaper
from ..compiler.ir.row import Accumulator, RowOp
from ..compiler.ir.scalar_ops import C_TYPES
from .elementwise import fast_math

Body = tuple[tuple[str, ...], tuple[str, ...]]
"""Statements and the names of their results."""

_MERGES = {"sum": "a.{0} + b.{0}", "max": "ge2::max_nan(a.{0}, b.{0})",
           "min": "ge2::min_nan(a.{0}, b.{0})", "max_number": "ge2::max_number(a.{0}, b.{0})"}


@lru_cache(maxsize=1024)
def render_row_op(op: RowOp, fast: bool = False) -> dict[str, Any]:
    """Return the template context that belongs to the operator alone (do not change it).

    Args:
        op: the operator.
        fast: use the cheaper functions that suffice for 16-bit results.
    """
    exact = _render(op, fast)
    # Statistics divide by counts: the exact division is a subroutine call, which costs registers.
    exact["merge"] = _fast(exact["merge"])
    return {key: _fast(value) for key, value in exact.items()} if fast else exact


def _fast(value: Any) -> Any:
    """Return a context value with fast functions in all its statements."""
    if isinstance(value, str):
        return fast_math(value)
    return tuple(_fast(part) for part in value) if isinstance(value, tuple) else value


def _render(op: RowOp, fast: bool) -> dict[str, Any]:
    firsts = _names("first.x", op.n_inputs if op.pivot else 0)
    xs, extras = _names("x.x", op.n_inputs), _names("e.e", op.n_extras)
    state = _names("s.s", len(op.state))
    both = _names("a.s", len(op.state)) + _names("b.s", len(op.state))
    seen = sum(len(stage) for stage in op.stages)
    return {
        "n_x": op.n_inputs,
        "pivot": op.pivot,
        "streamable": op.streamable,
        "out_kinds": op.outputs,
        "compute": C_TYPES[op.dtype],
        "state_types": tuple(C_TYPES[v.dtype] for v in op.state),
        "seen_types": (C_TYPES[op.dtype],) * seen,
        "result_types": tuple(C_TYPES[e.dtype] for e in op.finish),
        "init": _body(tuple(v.init for v in op.state), [])[1],
        "update": _body(op.update, state + xs + firsts),
        "merge": _body(op.merge, both),
        "collect": _body(op.collect, _names("seen.v", seen)),
        "finish": _body(cheaper(op.finish) if fast else op.finish, state + xs + extras + firsts),
        "stages": _stages(op, xs + firsts),
    }


def _names(stem: str, count: int) -> list[str]:
    return [f"{stem}{i}" for i in range(count)]


def _body(exprs: tuple[Expr, ...], inputs: list[str]) -> Body:
    text = render_c(exprs, inputs, ["static_cast<long long>(index)"], ["n"])
    return text.lines, text.results


def _stages(op: RowOp, row: list[str]) -> tuple[tuple[Any, ...], ...]:
    """Return per stage (types, inits, element lines, elements, merges, value lines, values, seen).
    """
    stages, seen = [], 0
    kind = C_TYPES[op.dtype]
    for stage in op.stages:
        elements = _body(tuple(a.element for a in stage), _names("seen.v", seen) + row)
        lines: tuple[str, ...] = ()
        results: tuple[str, ...] = ()
        for number, acc in enumerate(stage):
            text = render_c((acc.value,), [f"p.a{number}"], (), ["n"], prefix=f"v{number}_")
            lines, results = lines + text.lines, results + text.results
        inits = tuple(_init(op, acc) for acc in stage)
        merges = tuple(_MERGES[acc.combine].format(f"a{i}") for i, acc in enumerate(stage))
        stages.append(((kind,) * len(stage), inits, *elements, merges, lines, results, seen))
        seen += len(stage)
    return tuple(stages)


def _init(op: RowOp, acc: Accumulator) -> str:
    """Return the neutral element of a combination as C++."""
    from ..compiler.ir.expr import const
    from ..compiler.ir.row_ops import HIGHEST, LOWEST

    value = {"sum": 0, "max": LOWEST[op.dtype], "min": HIGHEST[op.dtype],
             "max_number": LOWEST[op.dtype]}[acc.combine]
    return _body((const(value, op.dtype),), [])[1][0]
