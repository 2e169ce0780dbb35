"""The seven questions, answered from what a kernel-level problem declares."""

from __future__ import annotations

from dataclasses import dataclass

from ...contract import DTYPES
from ...problem import Problem
from ..ir.expr import ExprBundle
from ..ir.expr import walk as walk_expr
from ..ir.row import RowOp
from ..kernels.walk import walk_of


@dataclass(frozen=True, slots=True)
class Answer:
    """One of the questions: yes or no, and what in the declaration says so."""

    question: str
    yes: bool
    because: str


def structure(problem: Problem) -> tuple[Answer, ...]:
    """Return the answers for a problem; in the order of opdefs.features.FEATURES."""
    declared = problem.attr_map
    row, bundle = declared.get("row"), declared.get("expr")
    if isinstance(row, RowOp):
        return _of_row(row)
    if problem.op_type == "ELEMENTWISE" and isinstance(bundle, ExprBundle):
        return _of_expressions(problem, bundle)
    return ()


def _of_row(op: RowOp) -> tuple[Answer, ...]:
    members = ", ".join(f"{v.name}: {v.dtype}" for v in op.state)
    size = sum(DTYPES[v.dtype].itemsize for v in op.state)
    state = f"a state ({members}) of {size} bytes sums up a row"
    merges = "merge(a, b) joins the states of two parts"
    passes = f"{len(op.stages)} passes of {_combines(op)}" if op.stages else "no passes"
    only = f"only whole-row passes are declared: {passes}"
    work = len([n for n in walk_expr(op.finish) if n.kind in ("unary", "binary", "select")])
    again = op.reads_row_to_finish
    return (
        Answer("reducible", True, state),
        Answer("streamable", op.streamable,
               "update(state, x) takes one element" if op.streamable else only),
        Answer("tile local", again,
               "a value per element needs the row again once the state is known: keep it close"
               if again else "one value per row: no element is needed twice"
               + (f", except in {passes}" if len(op.stages) > 1 else "")),
        Answer("recreatable", again, f"finish is {work} operations from x and the state: nothing "
               "between is kept in memory" if again else "nothing lies between state and result"),
        Answer("reorders", op.streamable or bool(op.stages),
               f"{merges} in any order" if op.streamable else passes),
        Answer("blockwise", True, "rows are independent"
               + (", and parts of a row meet by merge" if op.streamable else "")),
        Answer("mergeable", op.streamable, merges if op.streamable else only),
    )


def _combines(op: RowOp) -> str:
    return ", ".join(dict.fromkeys(a.combine for stage in op.stages for a in stage))


def _of_expressions(problem: Problem, bundle: ExprBundle) -> tuple[Answer, ...]:
    count = sum(1 for n in walk_expr(bundle.outputs) if n.kind in ("unary", "binary", "select"))
    tensors = tuple(t for t in problem.tensors if t is not None)
    walks = walk_of(tensors).strides
    turned = sum(1 for s in walks if s and s[-1] not in (0, 1) and 1 in s)
    return (
        Answer("reducible", False, "every element of the output stands for itself"),
        Answer("streamable", False, "there is no state"),
        Answer("tile local", turned > 0,
               f"{turned} operand(s) lie along another axis: a tile is read and written in turn"
               if turned else "operands and results are walked in the same order"),
        Answer("recreatable", True, f"{count} operations per element, from inputs alone"),
        Answer("reorders", True, "elements are independent"),
        Answer("blockwise", True, "elements are independent"),
        Answer("mergeable", False, "there is no state"),
    )
