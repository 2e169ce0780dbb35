"""Other forms of inputs: in the workspace, or in buffers of their own where inputs are constant."""

from __future__ import annotations

import dataclasses

import pytest

from ge2 import launch_table
from ge2.compiler.kernels import registry
from ge2.evidence.device import profile_for
from ge2.evidence.keys import problem_key, problem_text, shape_text
from ge2.launch.conv import conv_problem
from ge2.launch.gemm_examples import gemm_problem
from ge2.launch.prepare import aligned
from ge2.launch.record import WORKSPACE, LaunchRecord
from ge2.problem import Problem

H200 = profile_for("sm_90a")
X3 = "gemm/gemm_bias_act_wgmma_f32[MODE=x3,SCHEDULE=single,BM=64,BN=128,PROMOTE=1]"
CONVS = ("conv2d_lines", "conv2d_wgmma")


def product(mode: str = "x3", trans: tuple[bool, bool] = (False, False), *,
            constant: tuple[int, ...] = ()) -> Problem:
    plain = gemm_problem(("f32",) * 3, shape=(72, 68, 136), trans=trans)
    attrs = tuple(sorted({**plain.attr_map, "f32": mode}.items()))
    return dataclasses.replace(plain, attrs=attrs, constant=constant)


def convolution(*, constant: tuple[int, ...] = ()) -> Problem:
    return conv_problem("f16", (2, 64, 9, 10), (72, 64, 3, 3), pads=(1, 1, 1, 1),
                        constant=constant)


def slots(record: LaunchRecord) -> set[int]:
    return {hole.slot for hole in (*record.relocs, *record.tensor_maps)}


def places(records: list[LaunchRecord]) -> set[int]:
    """Return the offsets in the workspace that launches use."""
    return {hole.addend for record in records for hole in (*record.relocs, *record.tensor_maps)
            if hole.slot == WORKSPACE}


@pytest.mark.parametrize("constant", [(), (1,)])
def test_without_being_asked_all_launches_are_of_every_call(constant: tuple[int, ...]) -> None:
    records = launch_table.bind(product(constant=constant), registry.variant(X3), H200)
    assert len(records) == 3
    assert {record.prepares for record in records} == {-1}
    assert len({record.workspace for record in records}) == 1
    # Flags and planes of A, then of B, at multiples of 256 bytes.
    assert len(places(records)) == 4 and all(place % 256 == 0 for place in places(records))
    assert max(places(records)) < records[0].workspace


def test_a_constant_operand_has_a_buffer_behind_the_outputs() -> None:
    problem = product(constant=(1,))
    plain = launch_table.bind(product(), registry.variant(X3), H200)
    split_a, split_b, multiply = launch_table.bind(problem, registry.variant(X3), H200,
                                                   prepare=True)
    assert (split_a.prepares, split_b.prepares, multiply.prepares) == (-1, 1, -1)
    assert slots(split_b) == {0, 1} and split_b.workspace == 0 and split_b.prepared > 0
    assert len(problem.tensors) in slots(multiply) and slots(split_a) == {0, WORKSPACE}
    assert 0 < aligned(multiply.workspace) == plain[0].workspace - split_b.prepared
    assert [r.kernel for r in plain] == [r.kernel for r in (split_a, split_b, multiply)]


def test_two_constant_operands_have_two_buffers() -> None:
    problem = product(constant=(0, 1))
    *splits, multiply = launch_table.bind(problem, registry.variant(X3), H200, prepare=True)
    assert [split.prepares for split in splits] == [0, 1]
    behind = len(problem.tensors)
    assert {behind, behind + 1} <= slots(multiply) and WORKSPACE not in slots(multiply)
    assert multiply.workspace == 0


@pytest.mark.parametrize("name", CONVS)
def test_filters_are_arranged_with_x_or_once(name: str) -> None:
    variant = registry.get(name).variants[0]
    assert len(launch_table.bind(convolution(), variant, H200)) == 2
    problem = convolution(constant=(1,))
    filters, x, multiply = launch_table.bind(problem, variant, H200, prepare=True)
    assert (filters.prepares, x.prepares, multiply.prepares) == (1, -1, -1)
    assert filters.prepared == 72 * 9 * 64 * 2  # 8 channels to a chunk: none is padding
    assert 1 not in slots(x) | slots(multiply) and len(problem.tensors) in slots(multiply)


def test_all_convolutions_share_one_form_of_filters() -> None:
    found = {launch_table.bind(convolution(constant=(1,)), variant, H200, prepare=True)[0]
             for name in CONVS for variant in registry.get(name).variants[:2]}
    assert len(found) == 1


@pytest.mark.parametrize(("problem", "slot", "arch", "wanted"), [
    (product(), 1, "sm_90a", True), (product(), 2, "sm_90a", False),
    (product(), 1, "sm_80", False),  # no kernel with planes
    (product("tf32"), 1, "sm_90a", True), (product("tf32", (False, True)), 1, "sm_90a", False),
    (product("ieee"), 1, "sm_90a", False),
    (gemm_problem(("f16",) * 3), 1, "sm_90a", False),  # tensor maps reach it
    (gemm_problem(("f16",) * 3, shape=(64, 71, 64)), 1, "sm_90a", True),
    (convolution(), 1, "sm_80", True), (convolution(), 0, "sm_80", False),
    (conv_problem("f32", (2, 64, 9, 10), (72, 64, 3, 3)), 1, "sm_90a", False),
    (conv_problem("f16", (2, 64, 8, 8), (72, 64, 1, 1)), 1, "sm_90a", False),
])
def test_which_operands_kernels_bring_into_another_form(problem: Problem, slot: int, arch: str,
                                                        wanted: bool) -> None:
    assert launch_table.preparable(problem, slot, profile_for(arch)) is wanted


def test_evidence_tells_constant_operands_from_others() -> None:
    plain, constant = product(), product(constant=(1,))
    assert problem_key(plain) != problem_key(constant)
    assert problem_text(constant).replace("const ", "") == problem_text(plain)
    assert ", const f32[" in shape_text(constant) and "const" not in shape_text(plain)
    assert dataclasses.replace(constant, constant=()) == plain != constant
