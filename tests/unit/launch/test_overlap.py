"""Weights are fetched before the launch ahead has finished only where nothing writes them."""

from __future__ import annotations

import numpy as np
import pytest

from ge2 import launch_table
from ge2.compiler import opdefs
from ge2.compiler.ir.text import parse_graph
from ge2.compiler.kernels import registry
from ge2.compiler.plan import make_plan
from ge2.evidence.device import profile_for
from ge2.launch.gemm_examples import gemm_problem

H200 = profile_for("sm_90a")
KERNELS = ("gemm_bias_act_skinny", "gemm_bias_act_skinny_mma", "gemm_bias_act_skinny_ring")
LAYERS = """
input x: bf16[4, 2048]
{kind} w: bf16[2048, 2048]
h = MATMUL(x, w)
y = MATMUL(h, w)
output y
"""


@pytest.mark.parametrize("name", KERNELS)
def test_only_constant_weights_let_a_launch_overlap(name: str) -> None:
    variant = next(v for v in registry.get(name).variants
                   if v.param("PDL") and v.param_map.get("MT", 4) == 4)
    problem = gemm_problem(("bf16",) * 3, shape=(4, 256, 128), trans=(False, True))
    for constant, overlaps in (((), False), ((0,), False), ((1,), True), ((0, 1, 2), True)):
        (record,) = launch_table.bind(problem, variant, H200, constant=constant)
        assert record.pdl == overlaps


def test_the_large_operand_is_the_weights_also_where_operands_are_swapped() -> None:
    variant = next(v for v in registry.get(KERNELS[1]).variants if v.param("PDL"))
    problem = gemm_problem(("bf16",) * 3, shape=(256, 4, 128), trans=(False, True))
    assert not launch_table.bind(problem, variant, H200, constant=(1,))[0].pdl
    assert launch_table.bind(problem, variant, H200, constant=(0,))[0].pdl


@pytest.mark.parametrize("kind", ["const", "input"])
def test_a_plan_overlaps_layers_with_constant_weights_but_not_the_first(kind: str) -> None:
    """What runs before the plan may have written the weights, a caller's input as well."""
    weights = {"w": np.zeros((2048, 2048), np.uint16)} if kind == "const" else {}
    graph = parse_graph(LAYERS.format(kind=kind), weights,
                        infer=lambda op, types, attrs: opdefs.infer(op, types, attrs))
    first, second = make_plan(graph, H200).steps
    assert not first.records[0].pdl
    assert second.records[0].early == (1,)
    assert second.records[0].pdl == (kind == "const")
