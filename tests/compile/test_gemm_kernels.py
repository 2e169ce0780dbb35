"""The GEMM kernels compile without spills; the examples of their rules cover what they render."""

from __future__ import annotations

import re

import pytest

from ge2.compiler.kernels import registry, source
from ge2.evidence.device import profile_for
from ge2.launch.rule import LAUNCH_RULES

from .test_ptx_headers import compile_text

# One variant each of the shapes that differ in code; the full matrix runs with the other kernels.
CASES = [
    ("gemm_bias_act_f32", {"STAGING": "shared"}, "sm_75"),
    ("gemm_bias_act_f32_tiled", {"BM": 128, "BN": 128, "BK": 8}, "sm_80"),
    ("gemm_bias_act_f32_tiled", {"BM": 64, "BN": 64, "BK": 8}, "sm_90a"),
    ("gemm_bias_act_tc_f16", {"BM": 128, "BN": 128, "BK": 32, "STAGES": 4}, "sm_89"),
    ("gemm_bias_act_tc_f16", {"BM": 64, "BN": 64, "BK": 64, "STAGES": 3}, "sm_90a"),
]


@pytest.mark.parametrize(("name", "params", "arch"), CASES)
def test_compiles_without_spills(name: str, params: dict[str, object], arch: str) -> None:
    kernel = registry.get(name)
    variant = next(v for v in kernel.variants if dict(v.params) == params)
    rule = LAUNCH_RULES[kernel.launch]
    seen = set()
    for problem in rule.examples(variant):
        for record in rule.bind(problem, variant, profile_for(arch)):
            if record.kernel in seen:
                continue
            seen.add(record.kernel)
            log = compile_text(source.render(record.kernel), arch)
            assert re.search(r" 0 bytes spill stores", log), (variant.id, log)
    assert len(seen) >= 4
