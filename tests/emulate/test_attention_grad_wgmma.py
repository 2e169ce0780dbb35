"""Gradients of attention by wgmma against float64: bands, shared heads, ragged tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.metadata import Variant
from ge2.evidence.device import PROFILES
from ge2.launch.attention_grad import gradient_call, gradient_problem
from ge2.launch.attention_grad_wgmma import wgmma_gradient_refusal
from ge2.problem import Problem
from ge2.runtime.emulate import run_problem
from ge2.runtime.problem_reference import reference

from .test_attention_grad import attend, inputs_of

KERNEL = registry.get("attention_grad_wgmma")
ROUNDING = {"f16": 2.0**-11, "bf16": 2.0**-8}


def variant(queries: int, keys: int = 128) -> Variant:
    wanted = {"QUERIES": queries, "KEYS": keys}
    return next(v for v in KERNEL.variants if v.param_map == wanted)


CASES: dict[str, tuple[Variant, Problem]] = {
    # Heads that share keys, more tiles than stages, the diagonal within tiles.
    "causal": (variant(64, 96), gradient_problem("bf16", (1, 2, 135, 128), groups=1,
                                                 keys=140, causal=True, offset=5)),
    "several heads and tiles": (variant(112), gradient_problem("f16", (2, 2, 130, 64), keys=140)),
    # Queries before the first key and behind a window's last see none; blocks without a partner.
    "window": (variant(96), gradient_problem("f16", (1, 1, 290, 64), keys=150, left=20,
                                             causal=True, offset=-30)),
    "narrow values": (variant(80), gradient_problem("bf16", (1, 1, 81, 96), value=88, keys=65)),
}


def errors(chosen: Variant, problem: Problem, inputs: list[Any]) -> list[float]:
    found = run_problem(chosen, problem, inputs)
    return [float(np.linalg.norm(x.astype(np.float64) - w) / np.linalg.norm(w))
            for x, w in zip(found, reference(problem, inputs), strict=True)]


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_float64_and_is_clean(name: str) -> None:
    """Weights, slopes and results are rounded once each; no detector speaks."""
    chosen, problem = CASES[name]
    assert max(errors(chosen, problem, inputs_of(problem, ()))) < 2 * ROUNDING[
        problem.outputs[0].dtype]


def test_sharp_softmax_and_keys_behind_the_last() -> None:
    """Scores of some hundred, where an unmasked key of zeros would weigh infinitely much."""
    problem = gradient_problem("f16", (1, 1, 70, 64), keys=65)
    inputs = inputs_of(problem, ())
    inputs[:2] = np.abs(inputs[0]) * 8, -np.abs(inputs[1]) * 8
    attend(problem, inputs)
    assert inputs[4].max() < -128  # exp2 of its opposite is no float
    assert max(errors(variant(96), problem, inputs)) < 2 * ROUNDING["f16"]


def test_a_nan_query_reaches_only_what_it_weighs() -> None:
    """Its own gradient and those of its keys; not the other queries'."""
    problem = gradient_problem("f16", (1, 1, 70, 64))
    inputs = inputs_of(problem, ())
    inputs[0] = inputs[0].copy()
    inputs[0][0, 0, 17, 3] = np.nan
    dq, dk, _ = run_problem(variant(96), problem, inputs)
    assert np.flatnonzero(np.isnan(dq[0, 0].astype(np.float64)).any(-1)).tolist() == [17]
    assert np.isnan(dk.astype(np.float64)).all()


def test_repeats_bit_for_bit() -> None:
    problem = gradient_problem("f16", (1, 2, 70, 64), groups=1)
    inputs = inputs_of(problem, ())
    once, again = (run_problem(variant(96), problem, inputs) for _ in range(2))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(once, again, strict=True))


@pytest.mark.parametrize(("problem", "reason"), [
    (gradient_problem("f16", (1, 2, 64, 64), mask="f16"), "products"),
    (gradient_problem("f16", (1, 2, 64, 64), length="i32"), "products"),
    (gradient_problem("f16", (1, 2, 64, 136)), "more than 128"),
    (gradient_problem("f16", (1, 2, 64, 128)), "queries at a time"),
    (gradient_problem("f16", (1, 2, 64, 60)), "whole units"),
    (gradient_problem("f16", (1, 2, 64, 64), value=60), "whole units"),
])
def test_says_what_it_does_not_take(problem: Problem, reason: str) -> None:
    assert reason in wgmma_gradient_refusal(variant(96), gradient_call(problem))


@pytest.mark.parametrize(("q", "kernel"), [
    ((1, 2, 512, 128), "wgmma"), ((2, 2, 1000, 64), "wgmma"), ((1, 2, 511, 128), "mma"),
    ((1, 2, 600, 80), "mma")])
def test_is_chosen_for_long_sequences_of_whole_heads(q: tuple[int, int, int, int],
                                                     kernel: str) -> None:
    best = selector.rank(gradient_problem("bf16", q), PROFILES["sm_90a"])[0]
    assert best.variant_id.startswith(f"attention/attention_grad_{kernel}[")
