"""The problems of each family: small ones to verify on, and the sweep that evidence is about."""

from __future__ import annotations

from collections.abc import Callable

from ..launch.check import WINDOW_TILE
from ..launch.lab_primitives import (
    fuse_problem,
    reduce_problem,
    remat_problem,
    stage_problem,
    stream_problem,
)
from ..problem import Problem

# One row operator for each kind of state: a number, a position, moments, maximum and sum.
STATES = ("sum", "max", "argmax", "variance", "logsumexp")
SWEPT_STATES = ("sum", "argmax", "variance", "logsumexp")
_ROWS = ((65536, 64), (16384, 1024), (4096, 4096), (1024, 16384), (64, 262144), (1, 1 << 24))
_TALL = ((65536, 64), (16384, 256), (16384, 1024), (4096, 4096), (1024, 16384), (256, 32768))


def _verify_reduce() -> list[Problem]:
    return [reduce_problem(op, rows, n) for op in STATES
            for rows, n in ((1, 1), (5, 31), (3, 777), (2, 9001))]


# Tiny, ragged, and longer than a thread's share.
VERIFY: dict[str, Callable[[], list[Problem]]] = {
    "reduction": _verify_reduce,
    "streaming": lambda: [stream_problem(rows, n) for rows, n in ((1, 1), (3, 255), (2, 5003))],
    "staging": lambda: [stage_problem(tiles * WINDOW_TILE, taps)
                        for tiles, taps in ((1, 1), (3, 5), (11, 65))],
    "rematerialization": lambda: [remat_problem(rows, n) for rows, n in
                                  ((1, 17), (3, 257), (2, 1500))],
    "boundary": lambda: [fuse_problem(rows, n) for rows, n in ((1, 1), (3, 257), (2, 1500))],
}

SWEEP: dict[str, Callable[[], list[Problem]]] = {
    "reduction": lambda: [reduce_problem(op, *shape) for op in SWEPT_STATES for shape in _ROWS],
    "streaming": lambda: [stream_problem(*shape) for shape in _ROWS],
    "staging": lambda: [stage_problem(n, taps) for n in (1 << 18, 1 << 21, 1 << 24)
                        for taps in (1, 9, 33, 65)],
    "rematerialization": lambda: [remat_problem(*shape) for shape in _TALL],
    "boundary": lambda: [fuse_problem(*shape) for shape in _TALL],
}


def condition(problem: Problem) -> str:
    """Return what varies within a family besides the size: the state, the taps."""
    if problem.op_type == "LAB_REDUCE":
        return str(getattr(problem.attr_map["row"], "name", ""))
    if problem.op_type == "LAB_STAGE":
        weights = problem.inputs[1]
        return f"{weights.size if weights else 0} taps"
    return ""


def extent(problem: Problem) -> int:
    """Return the size along the sweep: row length, or outputs of a window."""
    x = problem.inputs[0]
    assert x is not None
    return problem.outputs[0].size if problem.op_type == "LAB_STAGE" else x.shape[-1]


def label(problem: Problem) -> str:
    """Return the shape for a person."""
    x = problem.inputs[0]
    assert x is not None
    shape = " x ".join(map(str, x.shape)) if len(x.shape) > 1 else str(problem.outputs[0].size)
    return " ".join(filter(None, (condition(problem), shape)))
