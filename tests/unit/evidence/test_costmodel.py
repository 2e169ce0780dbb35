"""The cost model: limits that must hold whatever the constants are, and learning from records."""

from __future__ import annotations

import pytest

from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.cost import axes_of, cost_points, predict
from ge2.evidence.costmodel import UNKNOWN, CostAxes, CostModel, fit, raw_time
from ge2.evidence.device import profile_for
from ge2.launch.gemm_examples import gemm_problem

H200 = profile_for("sm_90a")


def axes(blocks: int = 132, flops: float = 1e6, nbytes: float = 1e6) -> CostAxes:
    return CostAxes("k", blocks, 1, flops, True, 1e3, nbytes, 0.5)


def test_a_wave_that_is_not_full_costs_a_whole_one() -> None:
    full, partial, more = (raw_time(axes(n, flops=1e8), H200) for n in (132, 60, 133))
    assert partial == pytest.approx(full)
    assert more > 1.8 * full


def test_nothing_is_faster_than_memory_or_arithmetic() -> None:
    for shape in ((4096, 4096, 4096), (16, 4096, 4096), (512, 512, 512)):
        problem = gemm_problem(("f16", "f16", "f16"), shape=shape)
        m, n, k = shape
        flops_us = 2 * m * n * k / (H200.tensor_tflops * 1e6)
        bytes_us = 2 * (m * k + k * n + m * n) / (H200.copy_gbps * 1e3)
        for report in selector.rank(problem, H200):
            if report.score is not None:
                time = predict(problem, registry.variant(report.variant_id), CostModel(H200))
                assert time.time_us >= max(flops_us, bytes_us) * 0.999


def test_every_legal_variant_of_every_example_has_a_time() -> None:
    from ge2.launch.rule import LAUNCH_RULES

    for kernel in registry.all_kernels():
        for problem in LAUNCH_RULES[kernel.launch].examples(kernel.variants[0])[:2]:
            for report in selector.rank(problem, H200, kernels=[kernel]):
                if report.score is not None:
                    found = predict(problem, registry.variant(report.variant_id), CostModel(H200))
                    assert found.time_us > 0
                    assert found.uncertainty == UNKNOWN


def test_evidence_corrects_and_narrows() -> None:
    raw = [raw_time(axes(n), H200) for n in (10, 132, 500, 1000)]
    model = CostModel(H200, fit([("k", us, 3.0 * us) for us in raw]))
    found = model.predict(axes(264))
    assert found.time_us == pytest.approx(3.0 * raw_time(axes(264), H200))
    assert found.uncertainty < UNKNOWN / 2


def test_the_seam_ranks_by_predicted_time() -> None:
    problem = gemm_problem(("f16", "f16", "f16"), shape=(4096, 4096, 4096))
    points = cost_points(CostModel(H200))
    ranked = selector.rank(problem, H200, cost=points)
    parts = {r.variant_id: r.parts["cost"] for r in ranked if r.score is not None}
    for variant_id, value in parts.items():
        variant = registry.variant(variant_id)
        assert value == points(problem, variant, H200)
        assert axes_of(problem, variant).nbytes > 0
    assert selector.rank(problem, H200, cost=points) == ranked
