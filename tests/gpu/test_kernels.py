"""Every registered variant against float64: pairwise over sizes, layouts, dtypes and options.

Outputs are poisoned, operands lie between guard bytes, semaphores must be zero afterwards.
"""

from __future__ import annotations

import pytest

from ge2.compiler.kernels import registry
from ge2.errors import Ge2Error
from ge2.runtime import jit
from ge2.runtime.device import CudaDevice

from ..cases.coverage import Assigned, assign, sources
from ..cases.problems import cases_for
from ..cases.runner import Runner

KERNELS = [k.name for k in registry.all_kernels() if cases_for(k.op_type)]
SHOWN = 8


@pytest.fixture(scope="module")
def assigned(device: CudaDevice) -> dict[str, Assigned]:
    """All runs; everything they need is compiled here, in parallel."""
    found = {name: assign(registry.get(name), device.profile) for name in KERNELS
             if registry.get(name).runs_on(device.profile.arch)}
    jit.try_compile([r.kernel for r in sources(found.values())], device.profile.arch)
    return found


@pytest.fixture(scope="module")
def runner(device: CudaDevice) -> Runner:
    return Runner(device)


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_agrees_with_float64(name: str, assigned: dict[str, Assigned], runner: Runner,
                                    ) -> None:
    if name not in assigned:
        pytest.skip(f"{name} does not run on {runner.device.profile.arch}")
    runs = assigned[name].runs
    assert runs, f"no case reaches {name}"
    wrong = []
    for case, variant, records in runs:
        try:
            if records:
                runner.check_units(case, runner.device.prepare(records))
        except (AssertionError, Ge2Error) as error:
            wrong.append(f"{variant.id}: {error}")
    assert not wrong, f"{len(wrong)} of {len(runs)} runs fail:\n" + "\n".join(wrong[:SHOWN])


@pytest.mark.parametrize("name", KERNELS)
def test_every_variant_is_reached_by_a_case(name: str, assigned: dict[str, Assigned]) -> None:
    idle = [v.id for v in assigned[name].idle] if name in assigned else []
    assert not idle
