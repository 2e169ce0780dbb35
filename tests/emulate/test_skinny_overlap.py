"""Skinny kernels that overlap the launch before them wait before they read what it writes."""

from __future__ import annotations

import numpy as np
import pytest

from ge2 import launch_table
from ge2.compiler.kernels import registry
from ge2.compiler.kernels.source import render
from ge2.evidence.device import profile_for
from ge2.launch.gemm_examples import gemm_problem
from ge2.runtime import emulate
from ge2.runtime.emulate.launcher import fill_args

H200 = profile_for("sm_90a")
SIDE = 64
WAITS = ("ptx::griddep_wait();", "ge2::wait_once(waits);")


def run_twice(name: str, *, turned: bool, waits: bool) -> None:
    """Run X W, then (X W) W as a launch that overlaps the first."""
    problem = gemm_problem(("f16",) * 3, shape=(4, SIDE, SIDE), trans=(False, turned))
    variant = next(v for v in registry.get(name).variants
                   if v.param("PDL") and v.param_map.get("MT", 4) == 4)
    (record,) = launch_table.bind(problem, variant, H200, constant=(1,))
    assert record.pdl
    source = render(record.kernel)
    if not waits:
        for text in WAITS:
            source = source.replace(text, "")
        source = source.replace("bool waits = PDL;", "bool waits = false;")
    memory = emulate.Memory()
    x, w, bias, y, z = (memory.allocate(2 * n, label, initialised=label in ("x", "w", "bias"))
                        for label, n in (("x", 4 * SIDE), ("w", SIDE * SIDE), ("bias", SIDE),
                                         ("y", 4 * SIDE), ("z", 4 * SIDE)))
    for buffer in (x, w, bias):
        memory.bytes_of(buffer).view(np.float16)[:] = 0.5
    for rows, result in ((x, y), (y, z)):
        slots = {0: rows.address, 1: w.address, 2: bias.address, len(problem.inputs):
                 result.address}
        emulate.launch(record, fill_args(record, slots.__getitem__), memory=memory, source=source,
                       arch="sm_90a")


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("kernel", ["skinny", "skinny_mma", "skinny_ring"])
def test_rows_are_read_only_after_the_wait(kernel: str, turned: bool) -> None:
    if kernel == "skinny_mma" and not turned:
        pytest.skip("takes weights that run along k")
    name = f"gemm_bias_act_{kernel}"
    run_twice(name, turned=turned, waits=True)
    with pytest.raises(emulate.EmulationError, match="without griddep_wait"):
        run_twice(name, turned=turned, waits=False)
