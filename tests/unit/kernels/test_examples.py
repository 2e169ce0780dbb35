"""The example problems of the launch rules, which commands and other tests start from."""

from __future__ import annotations

import pytest

from ge2.compiler.kernels import registry
from ge2.compiler.kernels.metadata import KernelInfo
from ge2.launch import check
from ge2.launch.rule import LAUNCH_RULES
from ge2.launch.schemas import KERNEL_OPS


@pytest.mark.parametrize("kernel", registry.all_kernels(), ids=lambda kernel: kernel.name)
def test_examples_pass_the_checks_of_a_launcher(kernel: KernelInfo) -> None:
    for variant in kernel.variants:
        for problem in LAUNCH_RULES[kernel.launch].examples(variant):
            check.check_problem(problem)


def test_every_kernel_level_operator_has_a_check() -> None:
    assert set(check._CHECKS) == set(KERNEL_OPS)
