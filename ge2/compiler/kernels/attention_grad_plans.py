"""Which kernel and tile suit the gradients of an attention."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

from ...problem import Problem
from .facts import problem_dims

if TYPE_CHECKING:
    from .metadata import Variant

# The wgmma kernel is preferred for long sequences of whole heads only: there its products fill the
# tensor cores. Elsewhere its tiles and heads are padded, and nobody has measured it.
LONG = 512
WHOLE = (64, 128)
ELSEWHERE = -30.0  # more than what speaks for a kernel of this very architecture
# Throughput of so many queries at a time, relative to the first of a head size. Not measured: the
# gradient of v is summed up under other work only with the first, more queries reread fewer keys.
_SPEEDS: dict[int | str, float] = {64: 1.0, 80: 0.99, 96: 1.0, 128: 0.99}


def gradient_preference(problem: Problem, variant: Variant) -> float:
    """Return points: none for kernels without wgmma; 30 for each factor of two in time."""
    if variant.kernel.name != "attention_grad_wgmma":
        return 0.0
    dims = problem_dims(problem)
    queries, step = max(dims["QUERIES"], 1), int(variant.param("QUERIES"))
    padding = -(-queries // step) * step / queries
    points = -30.0 * log2(padding / _SPEEDS[step])
    suits = (min(dims["QUERIES"], dims["KEYS"]) >= LONG and dims["HEAD_SIZE"] in WHOLE
             and dims["VALUE_SIZE"] == dims["HEAD_SIZE"])
    return points if suits else points + ELSEWHERE
