"""Streaming attention by wgmma against float64: schedules over more tiles than blocks, masks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from ge2.compiler.kernels import registry
from ge2.compiler.kernels.metadata import Variant
from ge2.contract import numpy_dtype
from ge2.launch.attention_call import attention_call
from ge2.launch.attention_examples import attention_problem, softcap
from ge2.launch.attention_wgmma import wgmma_refusal
from ge2.problem import Problem
from ge2.runtime.emulate import run_problem
from ge2.runtime.emulate.problems import emulated_profile
from ge2.runtime.problem_reference import reference

KERNEL = registry.get("attention_wgmma")
DEVICE = dataclasses.replace(emulated_profile(KERNEL), sm_count=2)  # fewer blocks than tiles
ROUNDING = {"f16": 2.0**-11, "bf16": 2.0**-8}


def variant(bm: int, bn: int, schedule: str, turns: int = 0) -> Variant:
    wanted = {"BM": bm, "BN": bn, "OVERLAP": schedule, "TURNS": turns}
    return next(v for v in KERNEL.variants if v.param_map == wanted)


INTRA, FLAT = variant(128, 128, "intra"), variant(128, 128, "flat")
THREE, THREE_FLAT = variant(192, 128, "intra", 1), variant(192, 128, "flat", 1)

CASES: dict[str, tuple[Variant, Problem]] = {
    # More short tiles than blocks, one block of keys each.
    "short tiles": (FLAT, attention_problem("bf16", (2, 3, 64, 64), keys=127, lse=True)),
    "shared keys": (FLAT, attention_problem("f16", (2, 4, 129, 64), groups=2, keys=300,
                                            causal=True, offset=171, side_by_side=True)),
    "causal": (THREE_FLAT, attention_problem("f16", (1, 3, 300, 32), causal=True, lse=True)),
    "turns": (THREE, attention_problem("bf16", (1, 3, 129, 64), keys=300)),
    "one buffer": (variant(128, 112, "intra"), attention_problem("f16", (1, 3, 65, 192), keys=127)),
    "long formula": (variant(128, 64, "intra"),
                     attention_problem("f16", (1, 1, 64, 192), keys=127, score=softcap("f16"))),
    "narrow values": (variant(128, 144, "flat"),
                      attention_problem("f16", (1, 2, 70, 88), value=72, keys=300)),
    "window": (INTRA, attention_problem("f16", (1, 2, 200, 64), keys=300, left=70, right=10,
                                        offset=20, lse=True)),
    # Queries before the first key see none: rows of zeros, log-sum-exps of -inf.
    "no keys": (FLAT, attention_problem("f16", (1, 2, 200, 64), keys=100, causal=True, offset=-100,
                                        lse=True)),
    "added mask": (INTRA, attention_problem("f16", (2, 2, 70, 64), keys=136, mask="f16",
                                            mask_shape=(2, 1, 70, 136))),
}


def random_inputs(problem: Problem) -> list[Any]:
    draw = np.random.default_rng(5)
    found: list[Any] = []
    for spec in problem.inputs:
        if spec is None:
            found.append(None)
            continue
        steps = tuple(n if s else 1 for n, s in zip(spec.shape, spec.strides, strict=True))
        found.append(np.broadcast_to(draw.standard_normal(steps).astype(numpy_dtype(spec.dtype)),
                                     spec.shape))
    return found


def check(chosen: Variant, problem: Problem, inputs: list[Any],
          wanted: list[Any] | None = None) -> None:
    found = run_problem(chosen, problem, inputs, device=DEVICE)
    wanted = wanted or reference(problem, inputs)
    y, expected = found[0].astype(np.float64), wanted[0]
    rounding = ROUNDING[problem.outputs[0].dtype]
    assert np.isfinite(y).all()
    # Weights and results are rounded once each.
    assert np.linalg.norm(y - expected) <= 2 * rounding * np.linalg.norm(expected)
    assert np.abs(y - expected).max() <= 4 * rounding * np.abs(inputs[2].astype(np.float64)).max()
    if len(found) > 1:
        lse, of = found[1].astype(np.float64), wanted[1]
        assert (np.isneginf(lse) == np.isneginf(of)).all()
        seen = ~np.isneginf(of)
        assert np.abs(lse[seen] - of[seen]).max(initial=0) < 1e-5


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_float64_and_is_clean(name: str) -> None:
    """Values, log-sum-exps, and no detector speaks."""
    chosen, problem = CASES[name]
    check(chosen, problem, random_inputs(problem))


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_keys_behind_a_length_do_not_count(causal: bool) -> None:
    """What lies there may be anything: a cache is not cleared."""
    problem = attention_problem("f16", (3, 2, 100, 64), keys=180, length="i32", causal=causal,
                                lse=True)
    inputs = random_inputs(problem)
    inputs[4] = np.array([0, 180, 131], np.int32)
    wanted = reference(problem, inputs)
    for slot in (1, 2):
        inputs[slot] = inputs[slot].copy()
        inputs[slot][2, :, 131:] = np.nan
    chosen = FLAT if causal else THREE
    found = run_problem(chosen, problem, inputs, device=DEVICE)
    inputs[2][2, :, 131:] = 0
    assert np.isfinite(found[0].astype(np.float64)).all()
    error = np.linalg.norm(found[0].astype(np.float64) - wanted[0])
    assert error <= 2 * ROUNDING["f16"] * np.linalg.norm(wanted[0])
    assert np.isneginf(found[1][0]).all() and (found[0][0] == 0).all()


def test_nan_stays_in_its_row() -> None:
    """A NaN query makes its row NaN and no other."""
    problem = attention_problem("f16", (1, 1, 100, 64), lse=True)
    inputs = random_inputs(problem)
    inputs[0] = inputs[0].copy()
    inputs[0][0, 0, 17, 3] = np.nan
    y, lse = run_problem(INTRA, problem, inputs, device=DEVICE)
    bad = np.isnan(y.astype(np.float64)).all(-1)[0, 0]
    assert bad[17] and bad.sum() == 1
    assert np.flatnonzero(np.isnan(lse[0, 0])).tolist() == [17]


@pytest.mark.parametrize(("problem", "reason"), [
    (attention_problem("f16", (1, 2, 64, 64), align=8), "aligned"),
    (attention_problem("f16", (1, 2, 64, 60), value=64), "aligned"),
    (attention_problem("f16", (1, 2, 64, 64), value=60), "whole units"),
    (attention_problem("f16", (1, 2, 64, 264)), "more than 256"),
    (attention_problem("f16", (1, 2, 64, 128), starts="i32", sequences=2), "packed"),
])
def test_says_what_it_does_not_take(problem: Problem, reason: str) -> None:
    """The guard's reasons."""
    assert reason in wgmma_refusal(INTRA, attention_call(problem))
