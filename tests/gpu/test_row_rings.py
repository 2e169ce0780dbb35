"""Groups and clusters of blocks that walk over many long rows each: rings and rounds that wrap.

Whole devices have a group for nearly every row of a test; a part of one has not.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ge2.compiler.ir.row_ops import build_row_op
from ge2.compiler.kernels import registry
from ge2.compiler.kernels.metadata import Variant
from ge2.launch.row import row_problem
from ge2.launch.rule import LAUNCH_RULES
from ge2.runtime.device import CudaDevice

from ..cases.case import Case
from ..cases.layouts import operand
from ..cases.runner import Runner

VARIANTS = [v for name in ("row_pipe", "row_ring") for v in registry.get(name).variants]
ROWS = 24
PIPE_BLOCKS = 3
VECTOR = 4  # f32 elements of an access


def case_of(variant: Variant, op_name: str, share: float) -> Case:
    """Return rows of f32 that fill a share of the group's blocks."""
    blocks = int(variant.param_map.get("BLOCKS", PIPE_BLOCKS))
    accesses = int(variant.param("THREADS") * variant.param("VECTORS") * blocks * share)
    op, shape = build_row_op(op_name), (ROWS, accesses // 2 * 2 * VECTOR)
    operands = [operand("f32", shape, "dense") for _ in range(op.n_inputs)]
    operands += [operand("f32", shape, "per_column") for _ in range(op.n_extras)]
    problem = row_problem(op, [x.spec for x in operands], ["f32"] * len(op.outputs))
    operands += [operand("f32", spec.shape, "dense") for spec in problem.outputs]
    return Case(f"{op_name}-{shape[1]}", problem, tuple(operands), terms=shape[1])


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.id)
@pytest.mark.parametrize("share", [1.0, 0.83], ids=["full", "cut"])
@pytest.mark.parametrize("op_name", ["softmax", "layer_norm", "rms_norm"])
def test_many_rounds_agree_with_float64(device: CudaDevice, variant: Variant, op_name: str,
                                        share: float) -> None:
    if not variant.kernel.runs_on(device.profile.arch):
        pytest.skip(f"{variant.kernel.name} does not run on {device.profile.arch}")
    case = case_of(variant, op_name, share)
    blocks = int(variant.param_map.get("BLOCKS", PIPE_BLOCKS))
    part = replace(device.profile, sm_count=blocks)
    records = LAUNCH_RULES[variant.kernel.launch].bind(case.problem, variant, part)
    assert records[0].grid[0] < ROWS * blocks, "each group has several rows"
    runner, units = Runner(device), device.prepare(records)
    for repeat in range(4):
        runner.check_units(replace(case, name=f"{case.name}-{repeat}"), units)
