"""bench.sanitize without a GPU: what is run, and how a tool's output is read."""

from __future__ import annotations

import pytest

from bench import sanitize
from ge2.compiler.kernels import registry
from ge2.runtime.device import EmulatedDevice

OUTPUT = """========= COMPUTE-SANITIZER
>> row/a[X=1]
========= Invalid __global__ read of size 4 bytes
=========     at row_a+0x120 in row_a.cu:10
=========     by thread (1,0,0) in block (0,0,0)
========= Invalid __global__ read of size 4 bytes
=========     at row_a+0x120 in row_a.cu:10
>> raised LaunchFailed: illegal address
>> row/b
>> all 2
========= ERROR SUMMARY: 2 errors
"""


def test_findings_belong_to_the_variant_that_ran():
    found = sanitize.read(OUTPUT.splitlines())
    assert found.done == ["row/a[X=1]", "row/b"]
    assert found.found == {"row/a[X=1]": {"Invalid __global__ read of size 4 bytes": 2}}
    assert found.trouble == ["row/a[X=1]: raised LaunchFailed: illegal address"]


def test_a_run_that_breaks_off_says_where():
    assert sanitize.read([">> row/a"]).trouble == ["the process ended at row/a"]
    assert sanitize.read([">> row/a", ">> stopped at 1 of 9"]).trouble == ["stopped at 1 of 9"]


@pytest.mark.parametrize("name", ["row_thread", "gather_staged"])
def test_each_variant_runs_once_on_operands_of_its_own(name):
    device = EmulatedDevice("sm_90a")
    found = sanitize.runs(device, [name])
    assert sorted(v.id for _, v, _ in found) == sorted(v.id for v in registry.get(name).variants)
    for case, _, records in found:
        sanitize.launch(case, records, device)


def test_racecheck_leaves_out_what_it_does_not_see():
    assert not sanitize.runs(EmulatedDevice("sm_90a"), ["gemm_bias_act_wgmma_f32"], "racecheck")
