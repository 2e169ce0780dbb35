"""Row operators by structure: a mergeable state that is filled from a row and finished.

A declaration says how a state starts, how one element joins it, how two states merge, and what
comes out. Kernels, the NumPy reference and the structural features all follow from it.
Expressions see the row through these leaves:

    update    inputs state, x, first;        coordinate 0 = position in the row
    merge     inputs state a, state b
    stage     inputs earlier values, x, first; coordinate 0; in gradients scalar 0 = row length
    value     input 0 = the accumulated sum or maximum; scalar 0 = row length
    collect   inputs all stage values;       scalar 0 = row length
    finish    inputs state, x, extras, first; coordinate 0; scalar 0 = row length

`first` is the row's first element of each x, present where `pivot` is set: subtracting it keeps
sums of nearly equal large numbers exact.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from ...errors import Invalid
from .expr import (
    Expr,
    ExprBundle,
    const,
    coord,
    input,
    inputs_of,
    scalar,
    substitute,
    widen,
)

# max_number ignores NaN: one instruction, for stages whose later sums let NaN through anyway.
COMBINES = ("sum", "max", "min", "max_number")

State = SimpleNamespace
"""Named expressions of one state, as declarations see them."""


@dataclass(frozen=True, slots=True)
class StateVar:
    """One member of the state: its compute dtype and its value before any element."""

    name: str
    dtype: str
    init: Expr


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One whole-row reduction of a stage.

    Attributes:
        combine: sum, max, min or max_number.
        element: what each element contributes.
        value: what later stages see, from the combined result.
    """

    combine: str
    element: Expr
    value: Expr


@dataclass(frozen=True)
class RowOp:
    """A row operator; hashable, equal by structure.

    Attributes:
        name: shown in messages.
        dtype: compute dtype of x.
        n_inputs: operands that the state is filled from.
        n_extras: further operands that only finish reads (scale, bias).
        state: members of the state.
        update, merge: new state members, in order.
        finish: one expression per output.
        outputs: "row" (a value per element) or "scalar" (one per row), per output.
        stages: the same state by whole-row sums and maxima one after the other: fewer operations
            where the row is at hand more than once. Empty where only `update` exists.
        collect: state members from the stages' values.
        pivot: whether expressions read `first`.
        streamable: whether update and merge mean anything; a gradient has stages only.
    """

    name: str
    dtype: str
    n_inputs: int
    n_extras: int
    state: tuple[StateVar, ...]
    update: tuple[Expr, ...]
    merge: tuple[Expr, ...]
    finish: tuple[Expr, ...]
    outputs: tuple[str, ...]
    stages: tuple[tuple[Accumulator, ...], ...] = ()
    collect: tuple[Expr, ...] = ()
    pivot: bool = False
    streamable: bool = True

    @property
    def output(self) -> str:
        """Kind of the first output."""
        return self.outputs[0]

    @cached_property
    def text(self) -> str:
        """Stable text of the whole declaration."""
        parts = [f"{self.name} {self.dtype} x{self.n_inputs} e{self.n_extras} "
                 f"{','.join(self.outputs)} pivot={int(self.pivot)} "
                 f"streamable={int(self.streamable)}"]
        parts += [f"{v.name}:{v.dtype}={ExprBundle((v.init,)).text}" for v in self.state]
        for label in ("update", "merge", "collect", "finish"):
            exprs: tuple[Expr, ...] = getattr(self, label)
            parts += [f"{label} {ExprBundle(exprs).text}"] if exprs else []
        for number, stage in enumerate(self.stages):
            for acc in stage:
                both = ExprBundle((acc.element,)).text, ExprBundle((acc.value,)).text
                parts.append(f"stage {number} {acc.combine} {both[0]} -> {both[1]}")
        return "\n".join(parts)

    @cached_property
    def digest(self) -> int:
        """64-bit digest of the text; travels in params blocks."""
        raw = hashlib.blake2b(self.text.encode(), digest_size=8).digest()
        return int.from_bytes(raw, "little")

    @cached_property
    def reads_row_to_finish(self) -> bool:
        """Whether any output needs the elements again after the state is known."""
        return "row" in self.outputs

    @cached_property
    def _hash(self) -> int:
        # Expressions are unique objects: no need to write the text, which takes a millisecond.
        return hash((self.name, self.dtype, self.outputs, self.update, self.collect, self.finish))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        # Without the cached hash: expressions hash differently in every process.
        return RowOp, tuple(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        return self.text

    def widened(self) -> RowOp:
        """Return the operator computed in f64 instead of f32."""
        def wide(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return widen(ExprBundle(exprs)).outputs if exprs else ()

        stages = tuple(
            tuple(Accumulator(a.combine, *wide((a.element,)), *wide((a.value,))) for a in stage)
            for stage in self.stages)
        state = tuple(StateVar(v.name, "f64" if v.dtype == "f32" else v.dtype, *wide((v.init,)))
                      for v in self.state)
        dtype = "f64" if self.dtype == "f32" else self.dtype
        return RowOp(self.name, dtype, self.n_inputs, self.n_extras, state, wide(self.update),
                     wide(self.merge), wide(self.finish), self.outputs, stages,
                     wide(self.collect), self.pivot, self.streamable)

    def with_prologue(self, prologue: Sequence[Expr]) -> RowOp:
        """Return the operator whose x are expressions over raw inputs.

        Args:
            prologue: one expression per x over inputs 0..; the raw inputs become the new x, and
                are read again instead of keeping the computed value.

        Raises:
            Invalid: the operator pivots on its raw first element.
        """
        if self.pivot:
            raise Invalid(f"{self.name} subtracts the first raw element; it takes no prologue")
        n_raw = ExprBundle(tuple(prologue)).n_inputs
        raw = {e: i for i, e in enumerate(_raw_inputs(prologue, n_raw))}

        def replaced(exprs: tuple[Expr, ...], before: int, after: int) -> tuple[Expr, ...]:
            shift = {i: input(before + i, e.dtype) for e, i in raw.items()}
            mapped = substitute(tuple(prologue), shift)
            table = {before + i: e for i, e in enumerate(mapped)}
            for extra in range(after):
                old = before + self.n_inputs + extra
                for leaf in _leaves(exprs, old):
                    table[old] = input(before + n_raw + extra, leaf.dtype)
            return substitute(exprs, table)

        s = len(self.state)
        seen, stages = 0, []
        for stage in self.stages:
            stages.append(tuple(
                Accumulator(a.combine, replaced((a.element,), seen, 0)[0], a.value)
                for a in stage))
            seen += len(stage)
        return RowOp(f"{self.name}.pre", self.dtype, n_raw, self.n_extras, self.state,
                     replaced(self.update, s, 0), self.merge,
                     replaced(self.finish, s, self.n_extras), self.outputs, tuple(stages),
                     self.collect, streamable=self.streamable)

    def with_epilogue(self, epilogue: Sequence[Expr], n_more: int) -> RowOp:
        """Return the operator whose outputs pass through further expressions.

        Args:
            epilogue: one expression per new row output; inputs 0.. are the old outputs, then
                n_more further operands, which become extras.
            n_more: number of those.

        Raises:
            Invalid: an output is a scalar and another a row, so that positions do not match.
        """
        if len(set(self.outputs)) != 1:
            raise Invalid(f"{self.name} has outputs of different kinds; it takes no epilogue")
        start = len(self.state) + self.n_inputs + self.n_extras
        if self.pivot:
            # The first elements stand behind the extras and move up.
            moved = {start + i: input(start + n_more + i, self.dtype)
                     for i in range(self.n_inputs)}
            finish = substitute(self.finish, moved)
        else:
            finish = self.finish
        table = dict(enumerate(finish))
        for more in range(n_more):
            old = len(self.finish) + more
            for leaf in _leaves(tuple(epilogue), old):
                table[old] = input(start + more, leaf.dtype)
        return RowOp(f"{self.name}.post", self.dtype, self.n_inputs, self.n_extras + n_more,
                     self.state, self.update, self.merge, substitute(tuple(epilogue), table),
                     self.outputs[:1] * len(epilogue), self.stages, self.collect, self.pivot,
                     self.streamable)


@dataclass(frozen=True, slots=True)
class RowValues:
    """What update, stages and finish of a declaration see of the row.

    Attributes:
        xs, extras, firsts: operand values.
        index: position in the row, i64.
        n: row length in the compute dtype.
    """

    xs: tuple[Expr, ...]
    extras: tuple[Expr, ...]
    firsts: tuple[Expr, ...]
    index: Expr
    n: Expr

    @property
    def x(self) -> Expr:
        """The first operand."""
        return self.xs[0]

    @property
    def first(self) -> Expr:
        """The row's first element of the first operand."""
        return self.firsts[0]


StageTerm = tuple[str, Expr] | tuple[str, Expr, Callable[[Expr, Expr], Expr]]
"""(combine, element) or (combine, element, value(combined, n))."""


def row_op(
    name: str, *, state: Mapping[str, float | tuple[float, str]],
    merge: Callable[[State, State], Sequence[Expr]],
    finish: Callable[[State, RowValues], Sequence[Expr] | Expr],
    update: Callable[[State, RowValues], Sequence[Expr]] | None = None,
    single: Callable[[RowValues], Sequence[Expr]] | None = None,
    stages: Sequence[Callable[[tuple[Expr, ...], RowValues], Sequence[StageTerm]]] = (),
    collect: Callable[[tuple[Expr, ...], Expr], Sequence[Expr]] | None = None,
    outputs: Sequence[str] = ("row",), inputs: int = 1, extras: int = 0, dtype: str = "f32",
    pivot: bool = False,
) -> RowOp:
    """Build a RowOp from functions over named expressions.

    Args:
        name: shown in messages.
        state: member -> initial value, or (value, dtype).
        merge: the merged members from two states.
        finish: the outputs.
        update: the members after one more element; or
        single: the members of a state of one element (update then merges it).
        stages: per stage a function of (earlier values, row) that returns StageTerms.
        collect: the state from all stage values and the row length.
        outputs: "row" or "scalar" per output.
        inputs, extras: operand counts.
        dtype: compute dtype.
        pivot: whether the row's first element is read.

    Raises:
        Invalid: counts do not match, or neither update nor single is given.
    """
    members = [StateVar(key, *_member(value, dtype)) for key, value in state.items()]
    s = len(members)

    def named(start: int) -> State:
        return State(**{v.name: input(start + i, v.dtype) for i, v in enumerate(members)})

    def row(start: int, extra: int) -> RowValues:
        def leaves(first: int, count: int) -> tuple[Expr, ...]:
            return tuple(input(first + i, dtype) for i in range(count))

        after = start + inputs
        return RowValues(leaves(start, inputs), leaves(after, extra),
                         leaves(after + extra, inputs if pivot else 0), coord(0),
                         scalar(0, dtype))

    merged = tuple(merge(named(0), named(s)))
    if update is not None:
        updated = tuple(update(named(0), row(s, 0)))
    elif single is not None:
        one = tuple(single(row(s, 0)))
        updated = substitute(merged, {s + i: e for i, e in enumerate(one)})
    else:
        raise Invalid(f"row operator {name} needs update or single")
    finished = finish(named(0), row(s, extras))
    finished = (finished,) if isinstance(finished, Expr) else tuple(finished)
    built, total = _stages(stages, row, dtype)
    collected = tuple(collect(_values(total, dtype), scalar(0, dtype))) if collect else ()
    _check(name, {"update": (updated, s), "merge": (merged, s),
                  "finish": (finished, len(outputs))})
    if not built:
        built, collected = _stages_of(members, updated)
    if built:
        _check(name, {"collect": (collected, s)})
    return RowOp(name, dtype, inputs, extras, tuple(members), updated, merged, finished,
                 tuple(outputs), built, collected, pivot)


def _member(value: float | tuple[float, str], dtype: str) -> tuple[str, Expr]:
    number, kind = value if isinstance(value, tuple) else (value, dtype)
    return kind, const(number, kind)


def _values(count: int, dtype: str) -> tuple[Expr, ...]:
    return tuple(input(i, dtype) for i in range(count))


def _stages(stages: Sequence[Callable[..., Sequence[StageTerm]]],
            row: Callable[[int, int], RowValues], dtype: str,
            ) -> tuple[tuple[tuple[Accumulator, ...], ...], int]:
    built: list[tuple[Accumulator, ...]] = []
    seen = 0
    for stage in stages:
        terms = stage(_values(seen, dtype), row(seen, 0))
        accumulators = []
        for term in terms:
            if term[0] not in COMBINES:
                raise Invalid("unknown way to combine", found=term[0], wanted=", ".join(COMBINES))
            combined = input(0, dtype)
            value = term[2](combined, scalar(0, dtype)) if len(term) == 3 else combined
            accumulators.append(Accumulator(term[0], term[1], value))
        built.append(tuple(accumulators))
        seen += len(accumulators)
    return tuple(built), seen


def _stages_of(members: Sequence[StateVar], update: tuple[Expr, ...],
               ) -> tuple[tuple[tuple[Accumulator, ...], ...], tuple[Expr, ...]]:
    """Return the one stage of a state whose members are plain sums or maxima; else nothing."""
    s = len(members)
    if not members:
        return (), ()
    ways = {"add": ("sum", 0.0), "max": ("max", -math.inf), "min": ("min", math.inf)}
    found = []
    for i, (member, new) in enumerate(zip(members, update, strict=True)):
        parts = [a for a in new.args if not (a.kind == "input" and a.value == i)]
        if new.op not in ways or len(parts) != 1 or member.dtype != members[0].dtype:
            return (), ()
        combine, neutral = ways[new.op]
        if member.init.value != neutral or any(k < s for k in inputs_of(parts)):
            return (), ()
        shifted = {leaf: input(leaf - s, member.dtype) for leaf in inputs_of(parts)}
        found.append(Accumulator(combine, substitute(tuple(parts), shifted)[0],
                                 input(0, member.dtype)))
    return (tuple(found),), _values(s, members[0].dtype)


def _check(name: str, parts: Mapping[str, tuple[tuple[Expr, ...], int]]) -> None:
    for part, (found, wanted) in parts.items():
        if len(found) != wanted:
            raise Invalid(f"row operator {name}: {part} returns the wrong number of expressions",
                          found=len(found), wanted=wanted)


def _leaves(exprs: tuple[Expr, ...], index: int) -> list[Expr]:
    from .expr import walk

    return [e for e in walk(exprs) if e.kind == "input" and e.value == index]


def _raw_inputs(prologue: Sequence[Expr], count: int) -> list[Any]:
    found = []
    for index in range(count):
        leaves = _leaves(tuple(prologue), index)
        found.append(leaves[0] if leaves else input(index))
    return found
