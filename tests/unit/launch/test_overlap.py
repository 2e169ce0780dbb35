"""Which launches may start while those before them still run, and what they may read then."""

from __future__ import annotations

import numpy as np
import pytest

from ge2 import launch_table
from ge2.compiler import opdefs
from ge2.compiler.ir.text import parse_graph
from ge2.compiler.kernels import registry
from ge2.compiler.plan import make_plan
from ge2.evidence.device import profile_for
from ge2.launch.attention_examples import attention_problem
from ge2.launch.gather import gather_problem
from ge2.launch.gemm_examples import gemm_problem
from ge2.launch.norm_gemm import norm_gemm_problem

H200, A100 = profile_for("sm_90a"), profile_for("sm_80")
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


def test_a_product_of_normalised_rows_overlaps_where_its_weights_are_constant() -> None:
    variant = registry.get("norm_gemm_wgmma").variants[0]
    problem = norm_gemm_problem("f16", (128, 256, 128))
    for constant, overlaps in (((), False), ((0, 1, 3), False), ((2,), True)):
        (record,) = launch_table.bind(problem, variant, H200, constant=constant)
        assert record.pdl == overlaps


@pytest.mark.parametrize("name", ["attention_mma", "attention_decode", "norm_gemm_mma",
                                  "gather"])
def test_kernels_that_read_nothing_early_overlap_on_devices_that_can(name: str) -> None:
    problem = (gather_problem("f32", (10, 8), "i64", 0) if name == "gather"
               else norm_gemm_problem("f16", (128, 256, 128)) if name == "norm_gemm_mma"
               else attention_problem("f16", (1, 4, 1, 64), keys=4096))
    variant = registry.get(name).variants[0]
    for device in (H200, A100):
        records = launch_table.bind(problem, variant, device)
        assert [record.pdl for record in records] == [device is H200] * len(records)


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


def test_the_first_launch_of_a_plan_overlaps_nothing() -> None:
    """Else the second might read its weights while whatever came before still writes them."""
    text = """
input x: f32[64, 256]
h = EXP(x)
s = REDUCE_SUM(h, axes=[1])
y = EXP(s)
output y
"""
    graph = parse_graph(text, {}, infer=lambda op, types, attrs: opdefs.infer(op, types, attrs))
    overlaps = [record.pdl for record in make_plan(graph, H200).records]
    assert overlaps == [False] + [True] * (len(overlaps) - 1)
    assert len(overlaps) > 1
