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
# Time of a row that streams past when so many do at a time: (all of them, banded), from
# side-by-side runs on an H200 with heads of 128. More rows reread fewer of the own ones, but a band
# cuts more of them off. Where rows are not in the tables' runs, no tile is preferred.
_QUERY_TIMES: dict[int | str, tuple[float, float]] = {
    64: (1.0, 1.0), 80: (0.95, 1.035), 96: (1.0, 1.0), 112: (1.0, 1.0)}
_KEY_TIMES: dict[int | str, tuple[float, float]] = {96: (1.0, 1.0), 128: (0.96, 1.075)}
QUERY_SHARE = 4 / 7  # products of the launch past whose keys queries stream


def gradient_preference(problem: Problem, variant: Variant) -> float:
    """Return points: none for kernels without wgmma; 30 for each factor of two in time."""
    if variant.kernel.name != "attention_grad_wgmma":
        return 0.0
    from ...launch.attention_grad import gradient_call

    dims, params = problem_dims(problem), variant.param_map
    banded = gradient_call(problem).forward.is_banded
    queries = (_padding(dims["QUERIES"], params["QUERIES"])
               * _QUERY_TIMES[params["QUERIES"]][banded])
    keys = _padding(dims["KEYS"], params["KEYS"]) * _KEY_TIMES[params["KEYS"]][banded]
    time = QUERY_SHARE * queries + (1.0 - QUERY_SHARE) * keys
    suits = (min(dims["QUERIES"], dims["KEYS"]) >= LONG and dims["HEAD_SIZE"] in WHOLE
             and dims["VALUE_SIZE"] == dims["HEAD_SIZE"])
    return -30.0 * log2(time) + (0.0 if suits else ELSEWHERE)


def _padding(rows: int, step: int | str) -> float:
    """Return the rows in whole tiles per row."""
    return -(-rows // int(step)) * int(step) / rows if rows else 1.0
