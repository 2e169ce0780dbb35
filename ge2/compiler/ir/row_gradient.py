"""The gradient of a row operator, again as a row operator.

The stages are walked backwards: each whole-row value gets the sum over the row of what depends on
it, and passes that on to the elements it was made from. Sums that always vanish (with respect to a
maximum that is only there for stability, or to a mean) are found by trying numbers and left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import Invalid
from .expr import Expr, const, coord, differentiate, input, inputs_of, substitute, where
from .row import Accumulator, RowOp, StateVar
from .row_evaluate import evaluate_row

Array = npt.NDArray[Any]


def gradient(op: RowOp) -> RowOp:
    """Return the operator that computes the derivatives of its x and extras.

    Its inputs are op's x, op's extras, and one dy per output of op (per row for scalar outputs);
    its outputs are dx per x, then one row output per extra: the elementwise product that the
    caller sums over the rows which share the extra. It has stages but no update and merge.

    Raises:
        Invalid: op has no stages, or a primitive has no derivative.
    """
    if not op.stages:
        raise Invalid(f"row operator {op.name} has no gradient: its state is no plain sum or "
                      "maximum and it declares no stages")
    return _Backward(op).build()


class _Backward:
    """Leaves of the result: values 0..m-1 of the stages, then operands, then firsts."""

    def __init__(self, op: RowOp) -> None:
        self.op = op
        self.forward = [acc for stage in op.stages for acc in stage]
        self.m = len(self.forward)
        self.n_operands = op.n_inputs + op.n_extras + len(op.outputs)
        self.more: list[Accumulator] = []  # sums of the backward stages, one stage each

    def leaf(self, index: int) -> Expr:
        return input(index, self.op.dtype)

    def operand(self, position: int, values: int) -> Expr:
        return self.leaf(values + position)

    def relocate(self, exprs: tuple[Expr, ...], kinds: list[tuple[str, int]], values: int,
                 ) -> tuple[Expr, ...]:
        """Return exprs with leaf i meaning kinds[i] = (value | x | extra | first, number)."""
        start = {"value": 0, "x": values, "extra": values + self.op.n_inputs,
                 "first": values + self.n_operands}
        table = {i: self.leaf(start[kind] + number) for i, (kind, number) in enumerate(kinds)}
        used = set(inputs_of(exprs))
        return substitute(exprs, {i: e for i, e in table.items() if i in used})

    def kinds(self, *counts: tuple[str, int]) -> list[tuple[str, int]]:
        firsts = [("first", i) for i in range(self.op.n_inputs if self.op.pivot else 0)]
        return [(kind, i) for kind, count in counts for i in range(count)] + firsts

    def build(self) -> RowOp:
        op, m = self.op, self.m
        values = m + self._count_sums()
        stages = self._forward_stages()
        totals = self._sums(values)
        for acc in self.more:
            stages.append((acc,))
        finish = self._finish(totals, values)
        state = tuple(StateVar(f"v{i}", op.dtype, const(0, op.dtype)) for i in range(values))
        keep = tuple(self.leaf(i) for i in range(values))
        return RowOp(f"{op.name}.grad", op.dtype, self.n_operands, 0, state, keep, keep, finish,
                     ("row",) * len(finish), tuple(stages), keep, op.pivot, streamable=False)

    def _count_sums(self) -> int:
        """Plan with many slots, count those in use, start again."""
        self._sums(self.m + 4 * self.m + 4)
        count = len(self.more)
        self.more = []
        return count

    def _forward_stages(self) -> list[tuple[Accumulator, ...]]:
        stages, seen = [], 0
        for stage in self.op.stages:
            kinds = self.kinds(("value", seen), ("x", self.op.n_inputs))
            stages.append(tuple(
                replace(acc, element=self.relocate((acc.element,), kinds, seen)[0])
                for acc in stage))
            seen += len(stage)
        return stages

    def outputs_of(self, values: int) -> tuple[Expr, ...]:
        """Return op's finish over stage values instead of the state."""
        op = self.op
        collect = self.relocate(op.collect, [("value", i) for i in range(self.m)], values)
        s = len(op.state)
        kinds = [("state", i) for i in range(s)] + self.kinds(
            ("x", op.n_inputs), ("extra", op.n_extras))
        start = {"x": values, "extra": values + op.n_inputs, "first": values + self.n_operands}
        table = {i: collect[n] if kind == "state" else self.leaf(start[kind] + n)
                 for i, (kind, n) in enumerate(kinds)}
        used = set(inputs_of(op.finish))
        return substitute(op.finish, {i: e for i, e in table.items() if i in used})

    def weighted(self, wrt: int, values: int) -> Expr | None:
        """Return the sum over outputs of dy * d output / d leaf, per element; None if zero."""
        total: Expr | None = None
        for number, (expr, kind) in enumerate(zip(self.outputs_of(values), self.op.outputs,
                                                  strict=True)):
            slope = differentiate(expr, wrt)
            if _is_zero(slope):
                continue
            dy = self.operand(self.op.n_inputs + self.op.n_extras + number, values)
            term = dy * slope
            if kind == "scalar" and wrt < self.m:
                # There is one such output per row, so it counts for one element of the sum.
                term = where(coord(0).eq(const(0, "i64")), term, const(0.0, self.op.dtype))
            total = term if total is None else total + term
        return total

    def _add(self, element: Expr, values: int) -> Expr:
        """Add a sum over the row and return its value's leaf.

        Its element was written with operands behind `values` values; the stage sees fewer.
        """
        seen = self.m + len(self.more)
        move = {i: self.leaf(seen + i - values) for i in inputs_of((element,)) if i >= values}
        moved = substitute((element,), move)[0]
        self.more.append(Accumulator("sum", moved, self.leaf(0)))
        return self.leaf(seen)

    def _sums(self, values: int) -> list[Expr | None]:
        """Return per stage value its total derivative, as an expression over values; None = 0."""
        totals: list[Expr | None] = [None] * self.m
        for k in range(self.m):
            direct = None if self._drops(k) else self.weighted(k, values)
            if direct is not None:
                totals[k] = self._add(direct, values)
        for k in reversed(range(self.m)):
            if totals[k] is None:
                continue
            for earlier in range(self._stage_start(k)):
                slope = differentiate(self._element(k, values), earlier)
                if _is_zero(slope) or self._vanishes(k, earlier):
                    continue
                passed = self._scale(k, totals[k]) * self._add(slope, values)
                old = totals[earlier]
                totals[earlier] = passed if old is None else old + passed
        return totals

    def _stage_start(self, k: int) -> int:
        start = 0
        for stage in self.op.stages:
            if k < start + len(stage):
                return start
            start += len(stage)
        return start

    def _element(self, k: int, values: int) -> Expr:
        kinds = self.kinds(("value", self._stage_start(k)), ("x", self.op.n_inputs))
        return self.relocate((self.forward[k].element,), kinds, values)[0]

    def _scale(self, k: int, total: Expr | None) -> Expr:
        assert total is not None
        slope = differentiate(self.forward[k].value, 0)
        if 0 in inputs_of((slope,)):
            raise Invalid(f"row operator {self.op.name}: a stage's value must be linear in its sum")
        return total * slope

    def _drops(self, k: int) -> bool:
        """Whether a stage value is a maximum that has no lasting effect."""
        return self.forward[k].combine != "sum" and self._is_invariant(k)

    def _vanishes(self, k: int, earlier: int) -> bool:
        """Whether the sum over the row of d element k / d value `earlier` is always zero."""
        if self.forward[earlier].combine != "sum":
            return self._is_invariant(earlier)
        element = differentiate(self._element(k, self.m), earlier)
        probe = _probe(self.op, self.m, self._forward_stages(), element, self.n_operands)
        return bool(np.abs(probe).max() < 1e-9)

    def _is_invariant(self, k: int) -> bool:
        """Whether moving stage value k leaves the outputs alone once later stages follow."""
        op = self.op.widened()
        flat, moved = 0, []
        for stage in op.stages:
            terms = []
            for acc in stage:
                shift = acc.value + 0.37 if flat == k else acc.value
                terms.append(replace(acc, value=shift))
                flat += 1
            moved.append(tuple(terms))
        xs, extras = _samples(op)
        base = evaluate_row(op, xs, extras, by_stages=True)
        other = evaluate_row(replace(op, stages=tuple(moved)), xs, extras, by_stages=True)
        if all(np.allclose(a, b, rtol=1e-9, atol=1e-12)
               for a, b in zip(base, other, strict=True)):
            return True
        raise Invalid(f"row operator {self.op.name} has no gradient: a result depends on which "
                      "element is the maximum")

    def _finish(self, totals: list[Expr | None], values: int) -> tuple[Expr, ...]:
        zero = const(0.0, self.op.dtype)
        results = []
        for position in range(self.op.n_inputs + self.op.n_extras):
            wrt = values + position
            total = self.weighted(wrt, values)
            if position < self.op.n_inputs:
                for k, value in enumerate(totals):
                    if value is None:
                        continue
                    slope = differentiate(self._element(k, values), wrt)
                    if not _is_zero(slope):
                        term = self._scale(k, value) * slope
                        total = term if total is None else total + term
            results.append(zero if total is None else total)
        return tuple(results)


def _is_zero(expr: Expr) -> bool:
    return expr.kind == "const" and expr.value == 0


def _samples(op: RowOp) -> tuple[list[Array], list[Array]]:
    draw = np.random.default_rng(3)
    return ([draw.uniform(0.3, 2, (16, 9)) for _ in range(op.n_inputs)],
            [draw.uniform(0.3, 2, (16, 9)) for _ in range(op.n_extras)])


def _probe(op: RowOp, m: int, stages: list[tuple[Accumulator, ...]], element: Expr,
           n_operands: int) -> Array:
    """Return the sum over rows of an element expression over the forward values."""
    leaves = tuple(input(i, op.dtype) for i in range(m + 1))
    state = tuple(StateVar(f"v{i}", op.dtype, const(0, op.dtype)) for i in range(m + 1))
    last = (Accumulator("sum", element, input(0, op.dtype)),)
    probe = RowOp("probe", op.dtype, n_operands, 0, state, leaves, leaves, (leaves[m],),
                  ("scalar",), (*stages, last), leaves, op.pivot, streamable=False)
    draw = np.random.default_rng(4)
    xs = [draw.uniform(0.3, 2, (16, 9)) for _ in range(n_operands)]
    return evaluate_row(probe.widened(), xs, by_stages=True)[0]
