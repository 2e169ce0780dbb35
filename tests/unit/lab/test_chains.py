"""Chains of operators: what their treatments launch, store and keep, and what the passes obey."""

from __future__ import annotations

from math import prod

import pytest

from ge2.compiler.ir import properties
from ge2.compiler.kernels import registry
from ge2.errors import Unsupported
from ge2.evidence.device import profile_for
from ge2.lab import costs, plans, sweep
from ge2.lab.chains import CHAINS
from ge2.lab.plans import PlanVariant
from ge2.lab.realizations import realizations
from ge2.launch.record import SEMAPHORES, WORKSPACE

H200 = profile_for("sm_90a")
DIMS = {"attention": (2, 4, 64, 64), "softmax_backward": (8, 300), "layer_norm_backward": (8, 300)}


def problem(name: str, dtype: str = "f32"):
    return CHAINS[name].problem(*DIMS.get(name, (64, 96, 32)), dtype=dtype)


def launches(name: str, dtype: str = "f32") -> dict[str, int]:
    return {v.treatment: len(plans.bind(problem(name, dtype), v, H200))
            for v in plans.variants(CHAINS[name].family)
            if v.chain == name and v.serves(problem(name, dtype))}


@pytest.mark.parametrize("name", [n for n, c in CHAINS.items() if c.family == "boundary"])
def test_each_boundary_that_goes_is_a_launch_less_or_a_tensor_less(name: str) -> None:
    counts = list(launches(name).values())
    assert len(counts) >= 4 and counts == sorted(counts, reverse=True)
    assert counts[0] - counts[-1] >= 2


def test_the_gemm_chain_ends_as_one_composed_kernel() -> None:
    for dtype in ("f32", "f16"):
        assert launches("gemm_chain", dtype) == {
            "unfused": 6, "elementwise": 3, "epilogue": 3, "accumulation": 2, "everything": 1}
        given = problem("gemm_chain", dtype)
        record, = plans.bind(given, PlanVariant("gemm_chain", "everything"), H200)
        assert record.kernel.template == "lab/lab_compose_product.cu.j2"


@pytest.mark.parametrize(("name", "op"), [("norm_gemm", "NORM_GEMM"), ("attention", "ATTENTION")])
def test_one_launch_is_offered_where_there_are_kernels_for_it(name: str, op: str) -> None:
    assert ("everything" in launches(name)) == bool(registry.kernels_for(op))


@pytest.mark.parametrize("name", CHAINS)
def test_holes_are_operands_or_scratch_of_the_problem(name: str) -> None:
    given = problem(name)
    for variant in plans.variants(CHAINS[name].family):
        if not variant.serves(given):
            continue
        records = plans.bind(given, variant, H200)
        slots = {r.slot for record in records for r in record.relocs}
        assert slots <= {*range(len(given.tensors)), WORKSPACE, SEMAPHORES}
        assert {*range(len(given.tensors))} <= slots | {
            t.slot for record in records for t in record.tensor_maps}
        assert len({record.workspace for record in records}) == 1


def test_less_is_kept_where_more_is_computed_again() -> None:
    for name in ("softmax_backward", "layer_norm_backward", "gemm_backward"):
        kept = [plans.kept_bytes(problem(name), PlanVariant(name, how))
                for how in ("values", "statistics", "nothing")]
        assert kept[0] >= 4 * prod(problem(name).outputs[1].shape)
        assert kept[0] > 100 * kept[1] >= 100 * kept[2] == 0


def test_work_of_treatments_differs_by_what_they_compute_again() -> None:
    given = problem("gemm_backward")
    axes = {one.name: costs.axes(given, one, H200) for one in realizations("rematerialization")
            if one.serves(given)}
    flops = {name: a.flops * a.blocks for name, a in axes.items()}
    assert flops["nothing"] == pytest.approx(2 * flops["statistics"], rel=0.5)
    assert axes["values"].nbytes > axes["statistics"].nbytes


@pytest.mark.parametrize(("op", "name", "chain", "treatment"), [
    ("GELU", "elementwise", "gemm_chain", "elementwise"),
    ("MATMUL", "epilogue", "norm_gemm", "epilogue"),
    ("GEMM_BIAS_ACT", "epilogue", "gemm_chain", "accumulation"),
    ("RMS_NORM", "prologue", "norm_gemm", "accumulation"),
    ("SOFTMAX", "prologue", "attention", "accumulation"),
])
def test_without_its_licence_a_boundary_stays(op: str, name: str, chain: str, treatment: str
                                              ) -> None:
    variant = PlanVariant(chain, treatment)
    usual = len(plans.bind(problem(chain), variant, H200))
    plans.plan.cache_clear()
    plans._records.cache_clear()
    try:
        with properties.without(op, name):
            assert len(plans.bind(problem(chain), variant, H200)) > usual
    finally:
        plans.plan.cache_clear()
        plans._records.cache_clear()


def test_a_treatment_of_another_chain_is_refused() -> None:
    with pytest.raises(Unsupported, match="does not serve"):
        plans.bind(problem("norm_gemm"), PlanVariant("gemm_chain", "unfused"), H200)


def test_the_sweep_binds_everywhere() -> None:
    for family in ("boundary", "rematerialization"):
        found = realizations(family, "sm_90a")
        for given in sweep.SWEEP[family]():
            for one in found:
                if one.serves(given):
                    assert plans.bind(given, one.variant, H200)
