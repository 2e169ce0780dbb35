"""How 2-d pools are cut into patches; guards and the launch rule ask the same functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from ...contract import DTYPES
from ...problem import Problem

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile
    from .metadata import Variant

_MOST_INPUTS = 160  # of a patch: they are read by unrolled code
_LANE_BYTES = 8  # of x between the patches of neighbouring threads: more costs L1 bandwidth


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """Outputs of one thread."""

    rows: int
    columns: int


@lru_cache(maxsize=4096)
def patch_plan(problem: Problem) -> PatchPlan | None:
    """Return the patch of a POOL2D problem; None where even one output reads too much."""
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    kernel, steps, dilations = (cast("tuple[int, int]", problem.attr_map[name])
                                for name in ("kernel_shape", "strides", "dilations"))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    columns = max(1, min(4, _LANE_BYTES // (steps[1] * DTYPES[x.dtype].itemsize)))
    while columns > 1 and y.shape[3] < 2 * columns:
        columns //= 2
    for rows in (4, 2, 1):
        inputs = ((rows - 1) * steps[0] + reach[0]) * ((columns - 1) * steps[1] + reach[1])
        if inputs <= _MOST_INPUTS and (rows == 1 or y.shape[2] >= rows):
            return PatchPlan(rows, columns)
    return None


def refuse_pool_window(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of pool2d_window."""
    x = problem.inputs[0]
    assert x is not None
    if not x.is_dense:
        return "x is strided"
    if x.size == 0 and problem.outputs[0].size:
        return "windows lie in the padding alone"
    return "" if patch_plan(problem) else f"a window reads more than {_MOST_INPUTS} elements"
