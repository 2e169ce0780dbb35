"""Attention of few queries over many keys, the keys split over warps and blocks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ge2.compiler.kernels import registry, selector
from ge2.evidence.device import PROFILES, DeviceProfile
from ge2.launch import attention_decode
from ge2.launch.attention_call import attention_call
from ge2.launch.attention_decode import decode_plan
from ge2.launch.attention_examples import alibi, attention_problem, slopes
from ge2.problem import Problem
from ge2.runtime.emulate import run_problem
from ge2.runtime.emulate.problems import emulated_profile
from ge2.runtime.problem_reference import random_inputs, reference

from ..cases.runner import check_values

KERNEL = registry.get("attention_decode")
WIDE, NARROW = KERNEL.variants
# Weights are rounded to the type of the values before they are multiplied.
ROUNDED_WEIGHTS = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 0.0}

PROBLEMS = {
    # name: (problem, lengths of keys, multiprocessors)
    "group 4, a sample without keys": (
        attention_problem("f16", (3, 8, 1, 128), groups=2, keys=300, length="i32", lse=True),
        (300, 0, 37), 30),
    "group 8, causal, side by side": (
        attention_problem("bf16", (2, 8, 2, 64), groups=1, keys=90, causal=True, length="i64",
                          side_by_side=True), (90, 1), 12),
    "group 1, head of 256, mask": (
        attention_problem("f16", (1, 2, 1, 256), keys=70, mask="f16"), (), 4),
    "two tiles of rows, window, alibi": (
        attention_problem("bf16", (1, 8, 2, 80), value=96, groups=1, keys=100, lse=True, left=70,
                          offset=90, score=alibi("bf16"), extras=(slopes("f32", 8),)), (), 2),
    "rows of one head over two blocks": (
        attention_problem("f16", (1, 3, 7, 16), groups=1, keys=33, mask="bool",
                          mask_shape=(1, 3, 7, 33), lse=True), (), 2),
}


def device_of(multiprocessors: int) -> DeviceProfile:
    return dataclasses.replace(emulated_profile(KERNEL), sm_count=multiprocessors)


def inputs_of(problem: Problem, lengths: tuple[int, ...], seed: int) -> list[np.ndarray | None]:
    inputs = random_inputs(problem, seed)
    if lengths:
        inputs[4] = np.array(lengths, inputs[4].dtype)  # type: ignore[union-attr]
    return inputs


@pytest.mark.parametrize("name", PROBLEMS)
def test_rows_agree_with_float64_and_are_clean(name: str) -> None:
    problem, lengths, multiprocessors = PROBLEMS[name]
    inputs = inputs_of(problem, lengths, len(name))
    variant = KERNEL.variants[len(name) % 2]
    found = run_problem(variant, problem, inputs, device=device_of(multiprocessors))
    for spec, y, wanted in zip(problem.outputs, found, reference(problem, inputs), strict=True):
        check_values(name, spec.dtype, y, wanted, attention_call(problem).keys,
                     ROUNDED_WEIGHTS[spec.dtype])
    if 0 in lengths:
        empty = lengths.index(0)
        assert not np.any(found[0][empty])
        assert np.all(np.isneginf(found[1][empty]))


def test_the_last_block_merges_as_a_second_launch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = attention_problem("f16", (1, 4, 1, 32), groups=1, keys=400, lse=True)
    inputs, device = inputs_of(problem, (), 5), device_of(3)
    assert decode_plan(NARROW, attention_call(problem), device).splits > 4
    first = run_problem(NARROW, problem, inputs, device=device)
    again = run_problem(NARROW, problem, inputs, device=device)
    monkeypatch.setattr(attention_decode, "MERGED_APART", 2)
    apart = run_problem(NARROW, problem, inputs, device=device)
    for one, two, three in zip(first, again, apart, strict=True):
        assert one.tobytes() == two.tobytes() == three.tobytes()


def decoding(batch: int, keys: int) -> Problem:
    return attention_problem("bf16", (batch, 32, 1, 128), groups=8, keys=keys)


@pytest.mark.parametrize(("batch", "keys", "wide", "narrow"), [
    (16, 8192, (128, 1, 132), (128, 2, 264)),
    (1, 32768, (8, 16, 132), (8, 33, 264)),
    (64, 2048, (512, 1, 132), (512, 1, 264)),
    (1, 100, (8, 1, 132), (8, 2, 264)),
])
def test_splits_fill_the_device_once(batch: int, keys: int, wide: tuple[int, int, int],
                                     narrow: tuple[int, int, int]) -> None:
    """(blocks that share no keys, splits, blocks at a time) on 132 multiprocessors."""
    call = attention_call(decoding(batch, keys))
    for variant, wanted in ((WIDE, wide), (NARROW, narrow)):
        plan = decode_plan(variant, call, PROFILES["sm_90a"])
        assert (plan.shares, plan.splits, plan.slots) == wanted


@pytest.mark.parametrize(("problem", "wanted"), [
    (decoding(16, 8192), WIDE.id), (decoding(1, 32768), WIDE.id), (decoding(64, 2048), NARROW.id),
    (attention_problem("bf16", (1, 8, 64, 128), keys=512), ""),
    (attention_problem("bf16", (64, 12, 384, 64)), "")])
def test_few_queries_are_decoded(problem: Problem, wanted: str) -> None:
    best = selector.rank(problem, PROFILES["sm_90a"])[0].variant_id
    assert best == wanted if wanted else not best.startswith(KERNEL.template.partition(".")[0])


def test_as_many_splits_as_merge_slowly_in_the_last_block_are_merged_apart() -> None:
    problem = attention_problem("bf16", (1, 8, 1, 128), groups=1, keys=32768)
    records = attention_decode.DecodeRule().bind(problem, WIDE, PROFILES["sm_90a"])
    assert [r.kernel.entry for r in records] == list(KERNEL.entries)
    assert not any(r.semaphores for r in records)
