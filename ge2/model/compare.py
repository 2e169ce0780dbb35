"""Comparing an output with what was expected, and the report of a mismatch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Comparison:
    """How an array differs from the expected one.

    Attributes:
        name: the output's name.
        count, over: elements compared, and those outside the tolerance.
        max_abs, max_rel: largest absolute and relative difference of finite pairs.
        index: position of the worst element; () for a scalar, None when nothing differs.
        found, wanted: the two values there.
        nan_found, nan_wanted, inf_found, inf_wanted: counts.
        problem: why the arrays cannot be compared at all ("" when they can).
    """

    name: str
    count: int
    over: int
    max_abs: float
    max_rel: float
    index: tuple[int, ...] | None
    found: float
    wanted: float
    nan_found: int
    nan_wanted: int
    inf_found: int
    inf_wanted: int
    atol: float
    rtol: float
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether every element is inside the tolerance."""
        return not self.over and not self.problem

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "ok": self.ok}

    def report(self) -> str:
        """Return the lines that a person reads."""
        if self.problem:
            return f"{self.name}: MISMATCH: {self.problem}"
        head = (f"{self.name}: {'matches' if self.ok else 'MISMATCH'}: "
                f"max abs {self.max_abs:.3g}, max rel {self.max_rel:.3g} "
                f"(atol {self.atol:g}, rtol {self.rtol:g}, {self.count} elements)")
        if self.ok:
            return head
        lines = [head, f"  {self.over} of {self.count} elements outside the tolerance"]
        if self.index is not None:
            at = ", ".join(map(str, self.index))
            lines.append(f"  worst at [{at}]: found {self.found:.9g}, wanted {self.wanted:.9g}")
        lines.append(f"  NaN: {self.nan_found} found, {self.nan_wanted} wanted; "
                     f"Inf: {self.inf_found} found, {self.inf_wanted} wanted")
        return "\n".join(lines)


def default_tolerance(dtype: str) -> float:
    """Return the tolerance, absolute and relative, of an output dtype against float64."""
    return {"f32": 1e-4, "f16": 1e-2, "bf16": 5e-2, "f64": 1e-9}.get(dtype, 0.0)


def compare(name: str, found: npt.NDArray[Any], wanted: npt.NDArray[Any], *, atol: float,
            rtol: float) -> Comparison:
    """Compare two arrays; NaN matches NaN, an infinity matches the same infinity.

    Args:
        found: what a run produced.
        wanted: the reference.
        atol, rtol: an element passes when |found - wanted| <= atol + rtol * |wanted|.
    """
    if found.shape != wanted.shape:
        problem = f"shape {found.shape}, wanted {wanted.shape}"
        return Comparison(name, 0, 0, 0, 0, None, 0, 0, 0, 0, 0, 0, atol, rtol, problem)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    both = np.isfinite(a) & np.isfinite(b)
    with np.errstate(invalid="ignore", over="ignore"):
        diff = np.where(both, np.abs(a - b), np.where(same, 0.0, np.inf))
        limit = atol + rtol * np.where(np.isfinite(b), np.abs(b), 0.0)
        excess = np.where(diff > 0, diff - limit, -np.inf)
    over = int(np.count_nonzero(excess > 0))
    index: tuple[int, ...] | None = None
    value = goal = 0.0
    if diff.size and diff.max() > 0:
        flat = int(np.argmax(excess if over else diff))
        index = tuple(int(i) for i in np.unravel_index(flat, diff.shape))
        value, goal = float(a[index]), float(b[index])
    finite = diff[both]
    scale = np.abs(b[both])
    relative = finite[scale > 0] / scale[scale > 0]
    return Comparison(
        name, int(a.size), over, float(finite.max(initial=0.0)), float(relative.max(initial=0.0)),
        index, value, goal, int(np.isnan(a).sum()), int(np.isnan(b).sum()),
        int(np.isinf(a).sum()), int(np.isinf(b).sum()), atol, rtol)
