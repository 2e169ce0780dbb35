"""Attention over keys in pages: the same bits as over the keys one behind another."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ge2.compiler.kernels import registry
from ge2.compiler.passes.decompose import DecomposePass
from ge2.compiler.plan import make_plan
from ge2.evidence.device import PROFILES
from ge2.launch.attention_examples import attention_problem
from ge2.launch.attention_paged import paged_problem
from ge2.runtime.emulate import run_problem
from ge2.runtime.emulate.problems import emulated_profile
from ge2.runtime.problem_reference import random_inputs, reference

from ..cases.nodes import examples
from ..cases.runner import check_values

KERNEL = registry.get("attention_decode_paged")
DEVICE = dataclasses.replace(emulated_profile(KERNEL), sm_count=6)


@pytest.mark.parametrize(("side_by_side", "table"), [(False, "i32"), (True, "i64")])
def test_pages_hold_what_the_table_says(side_by_side: bool, table: str) -> None:
    """Pages in any order and shared by samples; entries behind kv_len are not looked at."""
    problem = paged_problem("f16", (3, 4, 1, 32), groups=2, pages=9, rows=16, most=5, lse=True,
                            table=table, side_by_side=side_by_side)
    inputs = random_inputs(problem, 3)
    lengths = np.array([71, 0, 16], np.int32)
    inputs[4] = lengths
    found = run_problem(KERNEL.variants[1], problem, inputs, device=DEVICE)
    for spec, y, wanted in zip(problem.outputs, found, reference(problem, inputs), strict=True):
        check_values("paged", spec.dtype, y, wanted, 80, 2.0**-11 if spec.dtype == "f16" else 0.0)
    beyond = np.arange(5) * 16 >= lengths[:, None]
    wild = [*inputs]
    wild[3] = np.where(beyond, 10**8, inputs[3]).astype(inputs[3].dtype)
    again = run_problem(KERNEL.variants[1], problem, wild, device=DEVICE)
    whole = attention_problem("f16", (3, 4, 1, 32), groups=2, keys=80, length="i32", lse=True)
    k, v = (x[inputs[3]].transpose(0, 2, 1, 3, 4).reshape(3, 2, 80, 32) for x in inputs[1:3])
    even = run_problem(registry.get("attention_decode").variants[1], whole,
                       [inputs[0], k, v, None, lengths, None, None], device=DEVICE)
    for one, two, three in zip(found, again, even, strict=True):
        assert one.tobytes() == two.tobytes() == three.tobytes()


def test_a_gpu_without_the_kernel_gathers_pages() -> None:
    served = next(examples("PAGED_ATTENTION")).graph("f16")
    found = {arch: [step.problem.op_type for step in make_plan(served, PROFILES[arch]).steps]
             for arch in ("sm_75", "sm_90a")}
    assert found["sm_90a"] == ["PAGED_ATTENTION"]
    assert found["sm_75"].count("GATHER") == 2 and found["sm_75"][-1] == "ATTENTION"


def test_pages_that_no_kernel_takes_are_gathered() -> None:
    served, other = examples("PAGED_ATTENTION")
    assert [n.op for n in DecomposePass()(served.graph("f16")).graph.nodes] == ["PAGED_ATTENTION"]
    for case in (served, other):
        graph = DecomposePass()(case.graph("f32")).graph
        ops = [node.op for node in graph.nodes]
        assert ops.count("GATHER") == 2 and "ATTENTION" in ops
        assert "PAGED_ATTENTION" not in ops
