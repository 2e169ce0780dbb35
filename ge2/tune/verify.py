"""Outputs against float64, element by element, with bounds that follow from dtype and length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from ..compiler.kernels.facts import problem_dims
from ..contract import DTYPES
from ..problem import Problem

Array = np.ndarray[Any, Any]

EPS = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
_SLACK = 8.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an output compares.

    Attributes:
        problem: what is wrong, "" where nothing is.
        max_abs: largest error. ulp: that in units of the output's dtype at its own scale.
    """

    problem: str
    max_abs: float = 0.0
    ulp: float = 0.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Error bounds: absolute plus relative."""

    atol: float
    rtol: float


def tolerance(problem: Problem, dtype: str, wanted: Array) -> Tolerance:
    """Return what rounding can cost: in the output's dtype, and in sums of f32 terms.

    Args:
        problem: gives the number of terms.
        dtype: of the output.
        wanted: the reference; its scale makes the absolute part.
    """
    eps = EPS.get(dtype, 0.0)
    if not eps:
        return Tolerance(0.0, 0.0)
    dims = problem_dims(problem)
    terms = dims.get("K", dims.get("N", dims.get("KEYS", 1)))
    finite = wanted[np.isfinite(wanted)]
    scale = sqrt(float(np.mean(np.square(finite)))) if finite.size else 0.0
    sums = (EPS["f64"] if dtype == "f64" else EPS["f32"]) * (_SLACK + max(terms, 1) / 8.0)
    # A chain of operators rounds where it stores; a product passes errors of its operands on.
    eps *= float(str(problem.attr_map.get("roundings", 1)))
    scale = max(scale, 1.0) if problem.op_type == "ELEMENTWISE" else scale
    return Tolerance((sums + eps) * scale * 2.0, _SLACK * EPS["f32"] * 2 + 2.0 * eps)


def compare(problem: Problem, index: int, found: Array, wanted: Array, axis: int | None,
            limit: Tolerance | None = None) -> Verdict:
    """Compare a whole output with its reference over one period.

    Args:
        problem: whose output it is. index: which.
        found: the output. wanted: float64 (or integers).
        axis: along which wanted repeats; None where it is whole.
        limit: instead of tolerance().
    """
    dtype = problem.outputs[index].dtype
    wanted = np.asarray(wanted).reshape(
        found.shape if axis is None else (*found.shape[:axis], -1, *found.shape[axis + 1:]))
    if DTYPES[dtype].kind != "float":
        bad = sum(int(np.count_nonzero(part != piece))
                  for part, piece in _blocks(found, wanted, axis))
        return Verdict(f"output {index}: {bad} elements differ" if bad else "")
    limit = limit or tolerance(problem, dtype, wanted)
    work = np.float64 if dtype == "f64" else np.float32
    with np.errstate(all="ignore"):
        ideal = wanted.astype(found.dtype).astype(work)
        bound = (limit.atol + limit.rtol * np.abs(wanted)).astype(work)
        return _judge(found, ideal, bound, axis, index, EPS[dtype])


def _judge(found: Array, ideal: Array, bound: Array, axis: int | None, index: int,
           eps: float) -> Verdict:
    worst, bad, first = 0.0, 0, ""
    blocks = zip(_blocks(found, ideal, axis), _blocks(found, bound, axis), strict=True)
    seen: Array | None = None  # the first block's bits, where it is right
    for number, ((part, want), (_, most)) in enumerate(blocks):
        bits = part.view(f"u{part.itemsize}")
        if seen is not None and np.array_equal(bits, seen):
            continue  # as most kernels do: there is nothing to judge again
        got = part.astype(want.dtype)
        error = np.abs(got - want)
        # Equal infinities differ by NaN, and NaN is right where NaN is wanted.
        right = (error <= most) | (got == want) | (np.isnan(got) & np.isnan(want))
        if not right.all():
            bad += int(right.size - np.count_nonzero(right))
            if not first:
                at = tuple(int(i) for i in np.argwhere(~right)[0])
                first = f"block {number} {list(at)}: found {got[at]:g}, wanted {want[at]:g}"
        elif number == 0:
            seen = bits
        finite = error[np.isfinite(error)]
        worst = max(worst, float(finite.max()) if finite.size else 0.0)
    finite = ideal[np.isfinite(ideal)]
    scale = float(np.abs(finite).max()) if finite.size else 1.0
    ulp = worst / (2 * eps * max(scale, 1e-30))
    if bad:
        return Verdict(f"output {index}: {bad} of {found.size} elements are wrong, the first at "
                       f"{first}", worst, ulp)
    return Verdict("", worst, ulp)


def _blocks(found: Array, wanted: Array, axis: int | None) -> Iterator[tuple[Array, Array]]:
    """Yield matching parts of an output and its reference."""
    if axis is None:
        yield found, wanted
        return
    period = wanted.shape[axis]
    lead = (slice(None),) * axis
    for start in range(0, found.shape[axis], period):
        part = found[(*lead, slice(start, start + period))]
        yield part, wanted[(*lead, slice(0, part.shape[axis]))]
