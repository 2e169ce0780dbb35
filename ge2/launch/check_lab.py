"""Checks of the lab's own problems."""

from __future__ import annotations

from ..compiler.ir.row import RowOp
from ..errors import Invalid
from ..problem import Problem
from .check_shapes import Check, broadcasts, require
from .schemas import KernelOp

WINDOW_TILE = 1024  # outputs of one tile of LAB_STAGE
WINDOW_SLACK = 64  # inputs beyond a tile that its window may reach


def _normalize_sum(problem: Problem, _op: KernelOp) -> None:
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    require(y.shape == x.shape, "output 0", y, x.shape)


def _lab_rows(problem: Problem, op: KernelOp) -> None:
    """The lab's row operators: further inputs are rows like x or one row for all."""
    x = problem.inputs[0]
    assert x is not None
    require(len(x.shape) == 2, "x", x, "2 axes")
    for slot, spec in enumerate(problem.inputs[1:], start=1):
        assert spec is not None
        require(spec.shape in (x.shape, x.shape[1:]), op.input_name(slot), spec,
                f"{x.shape} or {x.shape[1:]}")
    for index, spec in enumerate(problem.outputs):
        require(spec.shape in (x.shape, x.shape[:1]), f"output {index}", spec,
                f"{x.shape} or {x.shape[:1]}")


def _lab_window(problem: Problem, _op: KernelOp) -> None:
    x, w, y = problem.inputs[0], problem.inputs[1], problem.outputs[0]
    assert x is not None and w is not None
    require(len(w.shape) == 1 and 0 < w.size <= WINDOW_SLACK + 1, "weights", w,
            f"1 axis of at most {WINDOW_SLACK + 1}")
    require(len(y.shape) == 1 and y.size % WINDOW_TILE == 0, "output 0", y,
            f"a multiple of {WINDOW_TILE}")
    require(x.shape == (y.size + WINDOW_SLACK,), "x", x, (y.size + WINDOW_SLACK,))


def _lab_product(problem: Problem, op: KernelOp) -> None:
    a, b = problem.inputs[:2]
    assert a is not None and b is not None
    require(len(a.shape) == 2, "A", a, "2 axes")
    require(len(b.shape) == 2 and b.shape[1] == a.shape[1], "B", b, f"[n, {a.shape[1]}]")
    if not isinstance(problem.attr_map["row"], RowOp):
        raise Invalid("a composed kernel needs a row operator", argument="row",
                      found=problem.attr_map["row"], wanted="the id of a RowOp")
    shape = a.shape[0], b.shape[0]
    for index, y in enumerate(problem.outputs):
        require(y.shape in (shape, shape[:1]), f"output {index}", y, f"{shape} or {shape[:1]}")
    for slot, spec in enumerate(problem.inputs[2:], start=2):
        assert spec is not None
        require(broadcasts(spec.shape, shape), op.input_name(slot), spec,
                f"a shape that broadcasts to {shape}")


CHECKS: dict[str, Check] = {
    "LAB_NORMALIZE_SUM": _normalize_sum,
    "LAB_REDUCE": _lab_rows,
    "LAB_STREAM": _lab_rows,
    "LAB_STAGE": _lab_window,
    "LAB_COMPOSE_PRODUCT": _lab_product,
    "LAB_REMAT": _lab_rows,
    "LAB_FUSE": _lab_rows,
}
