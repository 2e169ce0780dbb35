"""Elementwise chains and transposes beside torch and a plain copy, in one process.

    python -m bench.elementwise --out bench/results/h200 [--only NAMES] [--variants] [--compile]

With --variants every realization that can solve a problem is timed, not only the selector's choice.
"""

from __future__ import annotations

from .elementwise_cases import SECTIONS
from .side_by_side import command

if __name__ == "__main__":
    command("elementwise", SECTIONS, __doc__)()
