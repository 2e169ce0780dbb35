"""The generator's decisions: they follow the device, the shape and evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ge2.compiler.codegen import design, structure
from ge2.compiler.ir.expr import ExprBundle, exp, input
from ge2.compiler.ir.row_gradient import gradient
from ge2.compiler.ir.row_ops import build_row_op
from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.selector import Basis
from ge2.compiler.opdefs.features import FEATURES
from ge2.evidence.device import profile_for
from ge2.launch.row import row_problem
from ge2.problem import Problem, TensorSpec

H200 = profile_for("sm_90a")


def softmax(rows: int, n: int, dtype: str = "bf16") -> Problem:
    return row_problem(build_row_op("softmax"), [TensorSpec.dense(dtype, (rows, n))], [dtype])


def test_structure_answers_all_questions_in_order() -> None:
    answers = structure(softmax(8, 64))
    assert [a.question for a in answers] == list(FEATURES)
    assert all(a.yes for a in answers) and "m: f32, s: f32" in answers[0].because


def test_structure_of_a_gradient_has_no_merge() -> None:
    op = gradient(build_row_op("softmax"))
    spec = TensorSpec.dense("f32", (4, 64))
    problem = row_problem(op, [spec] * (op.n_inputs + op.n_extras), ["f32"] * len(op.outputs))
    answers = {a.question: a for a in structure(problem)}
    assert not answers["mergeable"].yes and not answers["streamable"].yes
    assert answers["reorders"].yes


def test_structure_of_elementwise_sees_another_axis() -> None:
    spec = TensorSpec.dense("f32", (64, 64))
    turned = TensorSpec("f32", (64, 64), (1, 64))
    bundle = ExprBundle((exp(input(0)) + input(1),))
    problem = Problem("ELEMENTWISE", (spec, turned), (spec,), (("expr", bundle),))
    answers = {a.question: a for a in structure(problem)}
    assert answers["tile local"].yes and not answers["reducible"].yes


@pytest.mark.parametrize("n", [128, 4096, 65536, 1 << 20])
def test_decisions_are_the_selectors(n: int) -> None:
    problem = softmax(256, n)
    made = design(problem, H200)
    chosen = selector.select(problem, H200).variant
    assert made.choice.variant == chosen
    assert made.decisions[0].answer.startswith(chosen.kernel.name + ":")
    answers = {d.question: d.answer for d in made.decisions[1:]}
    assert answers == {k: str(chosen.param(k)) for k in answers}
    kernels = {k.name for k in registry.kernels_for("ROW")} - {chosen.kernel.name}
    assert {a.name for a in made.decisions[0].alternatives} == kernels


def test_every_alternative_has_a_score_or_a_reason() -> None:
    for decision in design(softmax(256, 16384), H200).decisions:
        assert decision.stands_on
        assert all((a.score is None) == bool(a.reason) for a in decision.alternatives)


def test_an_older_device_refuses_what_it_cannot_do() -> None:
    problem = softmax(64, 1 << 18)
    old = design(problem, profile_for("sm_80"))
    reasons = {a.name: a.reason for a in old.decisions[0].alternatives}
    assert "sm_90" in reasons["row_pipe"] and "sm_90" in reasons["row_cluster"]
    assert design(problem, H200).choice.variant != old.choice.variant


def test_evidence_is_named() -> None:
    problem = softmax(256, 4096)
    plain = selector.select(problem, H200)
    other = registry.variant(plain.reports[1].variant_id)
    choice = replace(plain, variant=other, basis=Basis("tuned", "measured today"))
    made = design(problem, H200, lambda problem, device: choice)
    assert made.decisions[0].stands_on == "tuned: measured today"
