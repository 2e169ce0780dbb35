"""Every registered variant compiles for every GPU that it is for, without spills or complaints.

A new template is picked up by itself: its launch rule's examples() say what to compile. By default
all variants are compiled for one architecture, and for the others enough of them that each value of
each param occurs, always with one example, another one each time; --full compiles everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import pytest

from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.metadata import KernelInfo, Variant
from ge2.errors import CompileFailed
from ge2.evidence.device import PROFILES
from ge2.launch.record import KernelSource
from ge2.launch.rule import LAUNCH_RULES
from ge2.problem import Problem
from ge2.runtime import jit

pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="needs cupy's NVRTC bindings")

ARCHS = tuple(PROFILES)
KERNELS = registry.all_kernels()
Outcome = jit.Compiled | CompileFailed
PAIRS = [pytest.param(kernel, arch, id=f"{kernel.name}-{arch}")
         for kernel in KERNELS for arch in ARCHS if kernel.runs_on(arch)]


def examples(variant: Variant) -> list[Problem]:
    return LAUNCH_RULES[variant.kernel.launch].examples(variant)


@lru_cache(maxsize=4096)
def accepted_by(kernel: KernelInfo, problem: Problem, arch: str) -> frozenset[str]:
    """Return the ids of the variants that accept a problem."""
    reports = selector.rank(problem, PROFILES[arch], kernels=[kernel])
    return frozenset(r.variant_id for r in reports if r.score is not None)


@lru_cache(maxsize=1024)
def accepted_examples(variant: Variant, arch: str) -> tuple[Problem, ...]:
    kernel = variant.kernel
    return tuple(p for p in examples(variant) if variant.id in accepted_by(kernel, p, arch))


def chosen_variants(kernel: KernelInfo, arch: str, full: bool) -> list[Variant]:
    """Return all usable variants, or but for one architecture a few with every value of each param.
    """
    usable = [v for v in kernel.variants if accepted_examples(v, arch)]
    supported = [a for a in ARCHS if kernel.runs_on(a)]
    if full or not usable or arch == ("sm_90a" if "sm_90a" in supported else supported[-1]):
        return usable
    start = ARCHS.index(arch) % len(usable)  # Other combinations on each architecture.
    left = [*usable[start:], *usable[:start]]
    chosen: list[Variant] = []
    covered: set[tuple[str, int | str]] = set()
    while not chosen or any(set(v.params) - covered for v in left):
        best = max(left, key=lambda v: len(set(v.params) - covered))
        chosen.append(best)
        covered |= set(best.params)
    return chosen


def chosen_examples(kernel: KernelInfo, arch: str, full: bool) -> Iterable[tuple[Variant, Problem]]:
    """Yield what to compile of a kernel; without `full`, the examples take turns."""
    for index, variant in enumerate(chosen_variants(kernel, arch, full)):
        problems = accepted_examples(variant, arch)
        turn = (index + ARCHS.index(arch)) % len(problems)
        for problem in problems if full else problems[turn : turn + 1]:
            yield variant, problem


def sources(kernel: KernelInfo, arch: str, full: bool) -> dict[KernelSource, str]:
    """Return what a kernel's examples compile, with the variant for messages."""
    rule = LAUNCH_RULES[kernel.launch]
    return {record.kernel: variant.id
            for variant, problem in chosen_examples(kernel, arch, full)
            for record in rule.bind(problem, variant, PROFILES[arch])}


def short_context(source: KernelSource) -> dict[str, object]:
    """Return what a source is rendered with, without its long texts."""
    return {name: value for name, value in source.context if len(str(value)) < 80}


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest) -> dict[str, dict[KernelSource, Outcome]]:
    """Compile what the selected tests ask for, in one batch for each architecture."""
    full = request.config.getoption("--full")
    wanted: dict[str, dict[KernelSource, str]] = {}
    for item in request.session.items:
        call = getattr(item, "callspec", None)
        if call and "outcomes" in getattr(item, "fixturenames", ()):
            arch = call.params["arch"]
            wanted.setdefault(arch, {}).update(sources(call.params["kernel"], arch, full))
    return {arch: jit.try_compile(found, arch) for arch, found in wanted.items()}


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("kernel", "arch"), PAIRS)
def test_variants_compile_cleanly(kernel: KernelInfo, arch: str, pytestconfig: pytest.Config,
                                  outcomes: dict[str, dict[KernelSource, Outcome]]) -> None:
    found = sources(kernel, arch, pytestconfig.getoption("--full"))
    faults = []
    for source, variant_id in found.items():
        outcome = outcomes[arch][source]
        if isinstance(outcome, CompileFailed):
            faults.append(f"{variant_id}: {outcome}\n{outcome.log}")
            continue
        used = outcome.meta.resources
        # A few bytes of stack are the return address of a division's slow path, not an array.
        stack = used.local_bytes > 16
        if used.spill_stores or used.spill_loads or stack or used.warnings:
            faults.append(f"{variant_id}: {used}\n  {short_context(source)}")
    assert found, f"{kernel.name} declares {arch}, but no variant accepts any of its examples there"
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_each_variant_has_examples_that_some_gpu_accepts(kernel: KernelInfo) -> None:
    archs = [arch for arch in ARCHS if kernel.runs_on(arch)]
    assert archs, f"{kernel.name} runs on none of {ARCHS}"
    for variant in kernel.variants:
        problems = examples(variant)
        if not problems and "lab" in kernel.flags:
            continue  # a scope that the realization does not reduce over
        assert problems, f"{variant.id} has no examples"
        for problem in problems:
            assert problem.op_type == kernel.op_type
            fits = [arch for arch in archs if problem in accepted_examples(variant, arch)]
            assert fits, (variant.id, problem)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_entries_are_those_that_records_launch(kernel: KernelInfo) -> None:
    arch = next(arch for arch in reversed(ARCHS) if kernel.runs_on(arch))
    for source in sources(kernel, arch, full=True):
        if source.template == kernel.template:
            assert source.entry in kernel.entries
