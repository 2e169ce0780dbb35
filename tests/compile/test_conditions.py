"""What a condition asks of the compiler, it does."""

from __future__ import annotations

import pytest

from ge2.evidence.device import profile_for
from ge2.lab import conditions, sweep
from ge2.lab.realizations import realizations
from ge2.runtime import jit

pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="needs cupy's NVRTC bindings")

H200 = profile_for("sm_90a")


def compiled(condition: str) -> jit.Compiled:
    """Return lab_stage with cp.async under a condition, "" for none."""
    one, = (r for r in realizations("staging") if r.name == "cp_async")
    ways = {"": one.variant, **{r.condition.name: r for r in conditions.restricted(one.variant)}}
    record, = conditions.bind(sweep.SWEEP["staging"]()[0], ways[condition], H200)
    return jit.compile([record.kernel], "sm_90a")[record.kernel]


def test_a_register_cap_holds() -> None:
    assert compiled("registers=32").meta.resources.registers <= 32 < compiled(
        "").meta.resources.registers


def test_copies_without_cp_async_are_another_kernel_and_a_carveout_is_not() -> None:
    usual = compiled("").path.read_bytes()
    assert compiled("async=off").path.read_bytes() != usual
    apart = compiled("carveout=0")
    assert apart.path.read_bytes() == usual and apart.path != compiled("").path
