"""ATTENTION beside torch, in one process.

    python -m bench.attention --out bench/results/h200 [--only hd128,hd64,...] [--variants]

The rivals are torch's backends of scaled_dot_product_attention; for formulas of scores and windows
a compiled flex_attention, with --compile only.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import attention_cases as cases
from .side_by_side import Part, command

SECTIONS: Mapping[str, Part] = {
    "hd128": Part(cases.long_heads), "hd64": Part(cases.short_heads),
    "gradients": Part(cases.gradients), "decode": Part(cases.decode),
    "heads": Part(cases.other_heads), "masks": Part(cases.masks),
    "formulas": Part(cases.formulas),
}

if __name__ == "__main__":
    command("attention", SECTIONS, __doc__)()
