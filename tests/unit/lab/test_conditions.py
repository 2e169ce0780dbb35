"""Conditions change launches and nothing else; the sweep applies them to a few problems."""

from __future__ import annotations

from ge2.evidence.device import profile_for
from ge2.lab import bench, conditions, sweep
from ge2.lab.conditions import CONDITIONS, RESTRICTED
from ge2.lab.realizations import realizations

H200 = profile_for("sm_90a")


def bound(family: str, name: str) -> dict[str, object]:
    one, = (r for r in realizations(family) if r.name == name)
    problem = next(p for p in sweep.SWEEP[family]() if one.serves(p))
    usual, = conditions.bind(problem, one.variant, H200)
    found = {r.condition.name: conditions.bind(problem, r, H200)[0]
             for r in conditions.restricted(one.variant)}
    return {"": usual, **found}


def test_each_condition_changes_what_it_names() -> None:
    found = bound("staging", "cp_async")
    usual = found.pop("")
    assert set(found) == set(CONDITIONS)
    assert found["carveout=0"].carveout == 0 and found["carveout=100"].carveout == 100
    assert dict(found["registers=32"].kernel.context)["min_blocks"] == 8
    assert found["blocks=1"].smem > H200.smem_per_sm // 2 >= found["blocks=2"].smem > usual.smem
    assert found["async=off"].kernel.options == ("-DGE2_SYNC_COPIES",)
    for record in found.values():
        assert (record.args, record.relocs, record.grid) == (usual.args, usual.relocs, usual.grid)


def test_kernels_that_differ_in_a_loaded_property_are_loaded_apart() -> None:
    records = bound("streaming", "online")
    sources = [record.kernel for name, record in records.items() if not name.startswith("blocks")]
    assert len(set(sources)) == len(sources)
    assert "async=off" not in records  # nothing to switch off


def test_the_sweep_applies_them_to_one_problem_of_a_state() -> None:
    for family, states in RESTRICTED.items():
        problems = sweep.SWEEP[family]()
        chosen = [p for p in problems if conditions.is_restricted(family, p)]
        assert [sweep.condition(p) for p in chosen] == list(states)
        found = realizations(family, "sm_90a")
        few = bench.candidates(family, chosen[0], found)
        assert len(few) >= 6 * sum(one.serves(chosen[0]) for one in found)
        other = next(p for p in problems if p not in chosen)
        assert len(bench.candidates(family, other, found)) <= len(found)
    assert len({r.id for r in few}) == len(few)
