"""The example problems of the launch rules, which commands and other tests start from."""

from __future__ import annotations

import pytest

from ge2 import launch_table
from ge2.compiler.kernels import registry
from ge2.compiler.kernels.metadata import KernelInfo
from ge2.evidence.device import PROFILES, profile_for
from ge2.launch.check import check_problem
from ge2.launch.rule import LAUNCH_RULES


@pytest.mark.parametrize("kernel", registry.all_kernels(), ids=lambda kernel: kernel.name)
def test_examples_are_well_formed_and_bind(kernel: KernelInfo) -> None:
    from ge2.commands.kernel_lookup import fitting_problems

    archs = [arch for arch in PROFILES if kernel.runs_on(arch)]
    for variant in kernel.variants:
        for problem in LAUNCH_RULES[kernel.launch].examples(variant):
            check_problem(problem)
        served = 0
        for arch in archs:
            for problem in fitting_problems(variant, arch):
                assert launch_table.bind(problem, variant, profile_for(arch))
                served += 1
        assert served, f"{variant.id} serves none of its examples on {archs}"
