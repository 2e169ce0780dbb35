"""Every registered variant against float64 on the emulator, clean of findings.

Cases come from the registry and tests/cases: for each variant a tiny, a middle and a large one that
its guards accept, the large one with more tiles than the (reduced) device has multiprocessors.
`--full` runs every case that reaches a kernel.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest

from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.metadata import KernelInfo, Variant
from ge2.compiler.kernels.source import template_path
from ge2.contract import numpy_dtype
from ge2.evidence.device import DeviceProfile
from ge2.problem import TensorSpec
from ge2.runtime.emulate import run_problem
from ge2.runtime.emulate.problems import emulated_profile, reach
from ge2.runtime.problem_reference import reference

from ..cases.case import Case
from ..cases.problems import cases_for
from ..cases.runner import check_values, random_values, slack_of

KERNELS = [k.name for k in registry.all_kernels() if cases_for(k.op_type)]
MOST_WORK = {"GEMM_BIAS_ACT": 8_000_000, "ROW": 600_000}  # what work() counts, of one case
SHOWN = 4
_PRODUCTS = ("GEMM_BIAS_ACT", "MATMUL_NBITS", "CONV2D")


def work(case: Case) -> int:
    """Elements of the largest tensor, or multiply-adds; small matrices fill whole tiles."""
    sizes = [o.spec.size for o in case.operands if o is not None]
    if case.problem.op_type in ("GEMM_BIAS_ACT", "NORM_GEMM"):
        *batch, m, n = (1, 1, *case.problem.outputs[0].shape)
        return math.prod(batch) * (-(-m // 64) * -(-n // 64) * 64 * 64) * max(case.terms, 1)
    terms = case.terms if case.problem.op_type == "CONV2D" else 1
    return max(*sizes, 1) if terms == 1 else case.operands[-1].spec.size * terms


def profile_of(kernel: KernelInfo) -> DeviceProfile:
    """The emulated device: two multiprocessors, so that small grids exceed them."""
    return dataclasses.replace(emulated_profile(kernel), sm_count=2)


def accepted(kernel: KernelInfo) -> dict[str, list[Case]]:
    """Return, for each variant, the cases that its guards accept, by growing work."""
    found: dict[str, list[Case]] = {v.id: [] for v in kernel.variants}
    for case in sorted(cases_for(kernel.op_type), key=work):
        if work(case) > MOST_WORK.get(kernel.op_type, 3_000_000):
            continue
        for report in selector.rank(case.problem, profile_of(kernel), kernels=[kernel]):
            if report.score is not None:
                found[report.variant_id].append(case)
    return found


def chosen(kernel: KernelInfo) -> Iterator[tuple[Variant, Case]]:
    """Yield a tiny, a middle and a large case for each variant, different ones where possible."""
    used: set[str] = set()
    for variant_id, cases in accepted(kernel).items():
        cases = [c for c in cases if all(s.size for s in c.problem.outputs)]
        for share in (0.0, 0.6, 1.0):
            at = int(share * (len(cases) - 1))
            near = sorted(range(len(cases)), key=lambda i: (cases[i].name in used, abs(i - at)))
            if near:
                used.add(cases[near[0]].name)
                yield registry.variant(variant_id), cases[near[0]]


@cache
def operand_values(name: str, spec: TensorSpec, slot: int, case: Case) -> np.ndarray:
    """Return random values as the operand's strides see them (broadcast axes repeat them)."""
    given = dict(case.given).get(slot)
    if given is not None:
        return np.array(given, numpy_dtype(spec.dtype))
    low, high = reach(spec)
    draw = np.random.default_rng(zlib.crc32(f"{name} {slot}".encode()))
    span = next(((a, b) for s, a, b in case.index_range if s == slot), None)
    storage = random_values(draw, spec.dtype, max(high - low, 1), span)
    if case.positive:
        storage = np.abs(storage) % 1 + storage.dtype.type(0.5)
    if spec.size == 0:
        return np.zeros(spec.shape, numpy_dtype(spec.dtype))
    strides = tuple(s * storage.itemsize for s in spec.strides)
    bits = storage.view(f"u{storage.itemsize}")[-low:]  # as in tests/cases/runner.py
    return np.lib.stride_tricks.as_strided(bits, spec.shape, strides).view(storage.dtype)


def run_case(variant: Variant, case: Case, device: DeviceProfile, seed: int = 0) -> None:
    """Run a case and compare with float64; see launch() for the seed.

    Raises:
        AssertionError, EmulationError: a wrong element, or a detector's finding.
    """
    inputs = [None if s is None else operand_values(case.name, s, i, case)
              for i, s in enumerate(case.problem.inputs)]
    found = run_problem(variant, case.problem, inputs, device=device, seed=seed)
    expected = reference(case.problem, inputs)
    # Cheap epilogue functions state absolute errors, which are relatively large near zero.
    cheap = "rounded_math" in template_path(variant.kernel.template).read_text("utf-8")
    for index, (spec, y, wanted) in enumerate(
            zip(case.problem.outputs, found, expected, strict=True)):
        if cheap:
            close = np.abs(y.astype(np.float64) - wanted) < 2e-4
            y = np.where(close, wanted.astype(y.dtype), y)
        check_values(f"{case.name} output {index}", spec.dtype, y, wanted, case.terms,
                     _slack(case, spec.dtype))


def _slack(case: Case, dtype: str) -> float:
    exact = case.problem.op_type == "GEMM_BIAS_ACT" and dtype != "f32"
    return 0.0 if exact else slack_of(case.problem, dtype)


def run_all(kernel: KernelInfo, runs: Sequence[tuple[Variant, Case]]) -> None:
    """Run cases; fail with the first few that are wrong."""
    assert runs, f"no case reaches {kernel.name}"
    wrong = []
    for variant, case in runs:
        try:
            run_case(variant, case, profile_of(kernel))
        except (AssertionError, RuntimeError) as error:
            wrong.append(f"{variant.id} on {case.name}: {error}")
    assert not wrong, f"{len(wrong)} of {len(runs)} runs fail:\n" + "\n".join(wrong[:SHOWN])


@pytest.mark.parametrize("name", KERNELS)
def test_every_variant_agrees_with_float64_and_is_clean(name: str) -> None:
    """Values within the output's rounding and the sums' error; no detector speaks."""
    kernel = registry.get(name)
    run_all(kernel, list(chosen(kernel)))


@pytest.mark.full
@pytest.mark.parametrize("name", KERNELS)
def test_every_case_agrees_with_float64_and_is_clean(name: str) -> None:
    """The complete matrix: each case with each variant that accepts it."""
    kernel = registry.get(name)
    run_all(kernel, [(registry.variant(v), c) for v, cs in accepted(kernel).items() for c in cs])
