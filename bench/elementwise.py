"""Elementwise chains and transposes beside torch and a plain copy, in one process.

    python -m bench.elementwise --out bench/results/h200 [--only NAMES] [--variants] [--compile]

`choice` times every variant on sizes that no rule was made for, `compile` times NVRTC on what the
other sections select.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import elementwise_cases as cases
from .compile_times import generated
from .rows import choice
from .side_by_side import Bench, Part, command
from .targets import Section

SECTIONS: Mapping[str, Part] = {
    "chains": Part(cases.chain_cases),
    "heavy": Part(cases.heavy_cases),
    "broadcast": Part(cases.broadcast_cases),
    "transposed": Part(cases.transposed_cases),
    "choice": Part(cases.unseen_cases, choice),
}


def compile_times(bench: Bench, section: Section) -> None:
    """Compile what the sections select."""
    generated((case for name, part in SECTIONS.items() if name != "choice"
               for case in part.cases()), bench, section)


if __name__ == "__main__":
    command("elementwise", SECTIONS, __doc__, {"compile": compile_times})()
