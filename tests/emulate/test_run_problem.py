"""run_problem, the fixture, and the time that they take."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from ge2.compiler.opdefs.gemm_epilogue import gemm_epilogue
from ge2.errors import NoKernelError, ShapeMismatch
from ge2.problem import Problem, TensorSpec
from ge2.runtime import emulate
from ge2.runtime.emulate.pytest_plugin import Emulator, emulator

__all__ = ["emulator"]

_RNG = np.random.default_rng(5)


def gemm(dtype: str, m: int, n: int, k: int) -> tuple[Problem, list[np.ndarray | None]]:
    """Return Y = A B and random operands."""
    attrs = {"trans_a": False, "trans_b": False, "alpha": 1.0, "beta": 1.0, "act": "none",
             "leaky_slope": 0.01,
             "epilogue": gemm_epilogue(dtype, (None, None), 1.0, 1.0, "none", 0.01)}
    inputs = (TensorSpec.dense(dtype, (m, k)), TensorSpec.dense(dtype, (k, n)), None, None)
    problem = Problem("GEMM_BIAS_ACT", inputs, (TensorSpec.dense(dtype, (m, n)),),
                      tuple(sorted(attrs.items())))
    numpy_type = {"f32": np.float32, "f16": np.float16}[dtype]
    arrays = [_RNG.standard_normal((m, k)).astype(numpy_type),
              _RNG.standard_normal((k, n)).astype(numpy_type), None, None]
    return problem, arrays


def test_the_fixture_compares_with_the_reference(emulator: Emulator) -> None:
    """A kernel by name; every launch leaves a report without findings."""
    emulator.compare("gemm_bias_act_f32_tiled", *gemm("f32", 70, 66, 20))
    assert [r.findings for r in emulator.reports] == [()]
    assert emulator.reports[0].steps > 0


def test_a_variant_id_is_taken_at_its_word() -> None:
    """The named variant runs; one that does not serve the problem is refused with its reason."""
    reports: list[emulate.Report] = []
    problem, arrays = gemm("f16", 64, 64, 32)
    emulate.run_problem("gemm/gemm_bias_act_tc_f16[BM=64,BN=64,BK=32,STAGES=4]", problem, arrays,
                        reports=reports)
    assert reports[0].kernel == "gemm_bias_act_tc_f16"
    with pytest.raises(NoKernelError, match="dtype"):
        emulate.run_problem("gemm_bias_act_tc_f16", *gemm("f32", 64, 64, 32))


def test_inputs_of_the_wrong_shape_are_refused() -> None:
    """The error names the input."""
    problem, arrays = gemm("f32", 8, 8, 8)
    with pytest.raises(ShapeMismatch, match="input 1"):
        emulate.run_problem("gemm_bias_act_f32", problem, [arrays[0], arrays[0][:4], None, None])


@pytest.mark.parametrize("name", ["gemm_bias_act_f32_tiled", "gemm_bias_act_tc_f16"])
def test_a_gemm_tile_takes_at_most_two_seconds_of_processor_time(
        name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 x 64 x 64 with an empty kernel cache: render, host compile, run. Other processes do not
    count, but neither may the compiler hide in a child: both are added up."""
    problem, arrays = gemm("f16" if "tc" in name else "f32", 64, 64, 64)
    emulate.compiler.runtime_library()
    monkeypatch.setattr(emulate.compiler, "cache_folder", lambda: tmp_path)
    before = sum(_times())
    emulate.run_problem(name, problem, arrays)
    assert sum(_times()) - before < 2.0


def _times() -> tuple[float, float]:
    import resource

    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time(), children.ru_utime + children.ru_stime
