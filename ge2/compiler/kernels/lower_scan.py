"""Running sums and products as problems: the axis that is run along comes last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...problem import Problem, TensorSpec

COMBINES = {"CUMSUM": "sum", "CUMPROD": "prod"}


def lower_scan(op: str, attrs: dict[str, Any], inputs: Sequence[TensorSpec | None],
               outputs: Sequence[TensorSpec]) -> Problem:
    """Return the SCAN problem of CUMSUM or CUMPROD."""
    x = inputs[0]
    assert x is not None
    axis = attrs["axis"] % len(x.shape)
    found = {"combine": COMBINES[op], "exclusive": attrs["exclusive"], "reverse": attrs["reverse"]}
    return Problem("SCAN", (_last(x, axis),), (_last(outputs[0], axis),),
                   tuple(sorted(found.items())))


def _last(spec: TensorSpec, axis: int) -> TensorSpec:
    order = [a for a in range(len(spec.shape)) if a != axis] + [axis]
    return replace(spec, shape=tuple(spec.shape[a] for a in order),
                   strides=tuple(spec.strides[a] for a in order))


def scan_preference(problem: Problem, threads: int | None) -> float:
    """Return score points: a thread per row where rows are neighbours, else by the row's length."""
    x = problem.inputs[0]
    assert x is not None
    neighbours = len(x.shape) > 1 and x.strides[-1] != 1 and 1 in x.strides
    if threads is None:
        return 20.0 if neighbours else -30.0
    wanted = 32 if x.shape[-1] <= 512 else 128 if x.shape[-1] <= 8192 else 512
    return 0.0 if threads == wanted else -4.0
