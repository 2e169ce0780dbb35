"""Gradients of attention at the lengths of real sequences."""

from __future__ import annotations

import pytest

from ge2.compiler.kernels import registry, selector
from ge2.launch.rule import LAUNCH_RULES
from ge2.runtime.device import CudaDevice

from ..cases.attention_grad import gradient_case, long_gradients
from ..cases.runner import Runner


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_long_sequences_agree_with_float64(device: CudaDevice, dtype: str) -> None:
    runner = Runner(device)
    for name, problem in long_gradients(dtype):
        best = selector.rank(problem, device.profile)[0]
        variant = registry.variant(best.variant_id)
        records = LAUNCH_RULES[variant.kernel.launch].bind(problem, variant, device.profile)
        runner.check_units(gradient_case(name, problem), device.prepare(records))
