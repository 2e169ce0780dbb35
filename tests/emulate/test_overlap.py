"""Kernels that may start while the launch before them still runs wait for it first.

The emulator takes it that the launch before may still write whatever is not constant, and may use
all that a kernel writes: test_registry finds a missing wait of any kernel. Here waits are missing.
"""

from __future__ import annotations

import pytest

from ge2.compiler.kernels import registry
from ge2.runtime.emulate import Edit, EmulationError, run_problem

from .test_registry import accepted, operand_values, profile_of

KERNELS = ("attention_wgmma", "attention_mma", "attention_decode", "norm_gemm_wgmma",
           "norm_gemm_mma", "row_warp", "elementwise_vec", "gather")
_HEADER = "#include <ge2/ptx/griddep.cuh>\n"


def _without_waits(source: str) -> str:
    return f"{_HEADER}#define griddep_wait griddep_launch_dependents\n{source}"


@pytest.mark.parametrize("name", KERNELS)
def test_a_launch_that_does_not_wait_is_found(name: str) -> None:
    kernel = registry.get(name)
    variant_id, cases = next((v, c) for v, c in accepted(kernel).items() if c)
    variant = registry.variant(variant_id)
    case = next(c for c in cases if all(s.size for s in c.problem.outputs))
    inputs = [None if s is None else operand_values(case.name, s, i, case)
              for i, s in enumerate(case.problem.inputs)]
    with pytest.raises(EmulationError, match="without griddep_wait"):
        run_problem(variant, case.problem, inputs, device=profile_of(kernel),
                    edit=Edit(text=_without_waits))
