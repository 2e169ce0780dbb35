"""Attention at the lengths of real sequences, and many short tiles again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.metadata import Variant
from ge2.errors import Ge2Error
from ge2.launch.attention_examples import alibi, attention_problem, slopes
from ge2.problem import Problem
from ge2.runtime.device import CudaDevice

from ..cases.attention import attention_case, packed_case
from ..cases.case import Case
from ..cases.runner import Runner

KERNELS = [k.name for k in registry.all_kernels() if k.op_type == "ATTENTION"]
# Those of attention_wgmma, which may hang, run in a process of their own: test_attention.py.
SHORT = [name for name in KERNELS if name != "attention_wgmma"]
DTYPES = ("f16", "bf16", "f32")


def long_cases(dtype: str) -> Iterator[Case]:
    """Yield masks and heads over lengths around 1000."""
    shapes = {
        "full": attention_problem(dtype, (2, 3, 1000, 64), lse=True),
        "causal": attention_problem(dtype, (1, 4, 1000, 128), groups=2, causal=True, lse=True,
                                    side_by_side=True),
        "ragged": attention_problem(dtype, (1, 2, 777, 96), keys=1025, causal=True, offset=248),
        "window": attention_problem(dtype, (1, 2, 1023, 32), left=100, right=50),
        "padding": attention_problem(dtype, (3, 2, 511, 32), mask="bool",
                                     mask_shape=(3, 1, 1, 511), side_by_side=True),
        "bias": attention_problem(dtype, (1, 2, 300, 80), mask=dtype, lse=True),
        "lengths": attention_problem(dtype, (4, 2, 129, 64), keys=1000, length="i64", causal=True,
                                     lse=True),
        "alibi": attention_problem(dtype, (1, 4, 640, 64), causal=True, score=alibi(dtype),
                                   extras=(slopes("f32", 4),)),
        "wide": attention_problem(dtype, (1, 1, 385, 256), lse=True),
        "wider": attention_problem(dtype, (1, 2, 300, 192), causal=True),
    }
    for name, problem in shapes.items():
        # Slopes are random: scores reach 3 * 640, and so many roundings of f32 an exponent.
        yield replace(attention_case(f"{name}-{dtype}", problem),
                      slack=2 * 1920 * 2.0**-24 if name == "alibi" else 0.0)
    yield packed_case(f"packed-{dtype}", dtype, (1, 500, 0, 63, 64, 65, 333), 2, 64, causal=True,
                      lse=True)


def accepted(name: str, problem: Problem, device: CudaDevice) -> list[Variant]:
    """Return the variants of a kernel that serve a problem."""
    reports = selector.rank(problem, device.profile, kernels=[registry.get(name)])
    return [registry.variant(r.variant_id) for r in reports if r.score is not None]


@pytest.fixture(scope="module")
def runner(device: CudaDevice) -> Runner:
    return Runner(device)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_long_sequences_agree_with_float64(name: str, dtype: str, runner: Runner) -> None:
    wrong, ran = [], 0
    for case in long_cases(dtype):
        for variant in accepted(name, case.problem, runner.device):
            try:
                ran += runner.check(case, variant)
            except (AssertionError, Ge2Error) as error:
                wrong.append(f"{variant.id}: {error}")
    assert not wrong, "\n".join(wrong)
    if not ran:
        pytest.skip(f"{name} serves none of them in {dtype} here")


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("length", [1, 64, 127, 129, 300, 511])
@pytest.mark.parametrize("causal", [False, True])
def test_many_short_tiles_are_right_each_time(name: str, length: int, causal: bool,
                                              runner: Runner) -> None:
    """Races between the copies of one tile and the reads of another show only now and then."""
    problem = attention_problem("f16", (16, 16, length, 64), causal=causal, lse=True)
    case = attention_case(f"short-{length}", problem)
    variants = accepted(name, problem, runner.device)
    if not variants:
        pytest.skip(f"{name} serves no f16 here")
    for variant in variants:
        for repeat in range(6):
            runner.check(replace(case, name=f"short-{length}-{repeat}"), variant)
