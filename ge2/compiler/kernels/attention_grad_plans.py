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
# Time of a row that streams past when so many do at a time. Not measured: more rows reread fewer of
# the own ones, but leave fewer registers and stages for work that overlaps.
_QUERY_TIMES: dict[int | str, float] = {64: 1.0, 80: 1.01, 96: 1.0, 112: 1.0}
_KEY_TIMES: dict[int | str, float] = {96: 1.0, 128: 1.01}
QUERY_SHARE = 4 / 7  # products of the launch past whose keys queries stream


def gradient_preference(problem: Problem, variant: Variant) -> float:
    """Return points: none for kernels without wgmma; 30 for each factor of two in time."""
    if variant.kernel.name != "attention_grad_wgmma":
        return 0.0
    dims, params = problem_dims(problem), variant.param_map
    queries = _padding(dims["QUERIES"], params["QUERIES"]) * _QUERY_TIMES[params["QUERIES"]]
    keys = _padding(dims["KEYS"], params["KEYS"]) * _KEY_TIMES[params["KEYS"]]
    time = QUERY_SHARE * queries + (1.0 - QUERY_SHARE) * keys
    suits = (min(dims["QUERIES"], dims["KEYS"]) >= LONG and dims["HEAD_SIZE"] in WHOLE
             and dims["VALUE_SIZE"] == dims["HEAD_SIZE"])
    return -30.0 * log2(time) + (0.0 if suits else ELSEWHERE)


def _padding(rows: int, step: int | str) -> float:
    """Return the rows in whole tiles per row."""
    return -(-rows // int(step)) * int(step) / rows if rows else 1.0
