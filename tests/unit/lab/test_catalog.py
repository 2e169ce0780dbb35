"""The catalog: primitives have realizations under one contract, operators decompose into them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ge2 import paths
from ge2.cli import run
from ge2.compiler.ir.properties import PROPERTIES
from ge2.compiler.kernels import headers, registry
from ge2.errors import Invalid, KernelSpecError
from ge2.evidence.device import profile_for
from ge2.evidence.record import Record
from ge2.lab import decompose, primitives, sweep
from ge2.lab.realizations import realizations
from ge2.lab.verify import offered
from ge2.launch.rule import LAUNCH_RULES
from ge2.tune.describe import Describer

NAMED = {
    "tree_reduction", "warp_local_reduction", "block_reduction", "hierarchical_accumulation",
    "online_accumulation", "streaming_weighted_reduction", "blockwise_state_update",
    "rescaling_preserving_accumulation", "shared_memory_staging", "double_buffering",
    "async_stage_loading", "producer_consumer_pipeline", "intermediate_save_elimination",
    "recompute_based_epilogue", "checkpoint_like_realization", "memory_for_compute",
    "elementwise_boundary_elimination", "partial_epilogue_fusion", "accumulation_local_fusion",
    "materialization_avoidance",
}


def test_every_named_primitive_is_there_and_complete() -> None:
    assert set(primitives.PRIMITIVES) == NAMED
    for primitive in primitives.PRIMITIVES.values():
        assert primitive.definition and primitive.costs and primitive.numerics
        assert set(primitive.needs) <= set(PROPERTIES)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_primitive_is_embodied_and_has_an_alternative(name: str) -> None:
    primitive = primitives.get(name)
    found = realizations(primitive.family)
    assert any(one.embodies(primitive) for one in found)
    assert len(found) >= 2


@pytest.mark.parametrize("family", primitives.FAMILIES)
def test_every_problem_of_a_family_has_interchangeable_realizations(family: str) -> None:
    found = realizations(family)
    for problem in (*sweep.VERIFY[family](), *sweep.SWEEP[family]()):
        assert sum(one.serves(problem) for one in found) >= 2
        assert sweep.label(problem) and sweep.extent(problem) > 0
        assert sweep.condition(problem)


def test_softmax_decomposes_as_declared() -> None:
    parts = [step.what for step in decompose.steps("softmax")]
    assert parts == ["max tracking", "rescaled accumulation", "mergeable summary",
                     "blockwise or streaming update", "denominator coupling",
                     "weighted reduction", "separable finish stage"]


def test_normalization_decomposes_as_declared() -> None:
    parts = [step.what for step in decompose.steps("normalization")]
    assert list(dict.fromkeys(parts)) == [
        "statistics accumulation", "mergeable summary", "blockwise reduction or online update",
        "denominator coupling", "separable normalize stage"]


@pytest.mark.parametrize("name", decompose.known())
def test_every_operator_names_primitives_of_the_catalog(name: str) -> None:
    steps = decompose.steps(name)
    assert steps
    assert {s.primitive for s in steps} - {""} <= set(primitives.PRIMITIVES)


def test_an_unknown_operator_gets_near_names() -> None:
    with pytest.raises(Invalid, match="softmax"):
        decompose.steps("softmx")


def test_a_header_in_a_users_folder_becomes_a_realization(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "include" / "ge2" / "prim" / "stream"
    folder.mkdir(parents=True)
    own = paths.include_dir() / "ge2/prim/stream/online.cuh"
    (folder / "mine.cuh").write_text(own.read_text().replace("::online", "::mine"))
    monkeypatch.setenv("GE2_KERNEL_PATH", str(tmp_path))
    registry.reset()
    try:
        assert "mine" in [one.name for one in realizations("streaming")]
        assert "lab/lab_stream[REALIZATION=mine]" in [
            v.id for v in registry.get("lab_stream").variants]
    finally:
        monkeypatch.undo()
        registry.reset()


@pytest.mark.parametrize(("text", "reason"), [
    ("// nothing", "says nothing"), ("/*--- toml\n= 1\n---*/", "no.* valid TOML|not valid TOML"),
    ('/*--- toml\nprimitive = "stream"\nsumary = "x"\n---*/', "unknown key"),
    ('/*--- toml\nprimitive = "stage"\n---*/', "another primitive"),
])
def test_bad_headers_are_refused_with_the_reason(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str) -> None:
    folder = tmp_path / "include" / "ge2" / "prim" / "stream"
    folder.mkdir(parents=True)
    (folder / "mine.cuh").write_text(text)
    monkeypatch.setenv("GE2_KERNEL_PATH", str(tmp_path))
    with pytest.raises(KernelSpecError, match=reason):
        headers.realizations("stream")


def test_a_realization_that_failed_is_not_offered_until_it_changes() -> None:
    device = profile_for("sm_90a")
    one = realizations("streaming")[0]
    problem = sweep.VERIFY["streaming"]()[1]
    digest = Describer(device).sources(problem, one.variant)

    def record(sources: str) -> Record:
        return Record(problem="p", op_type="LAB_STREAM", shape="s", variant=one.variant.id,
                      device="d", cubin="c", state="wrong", sources=sources)

    names = [o.name for o in offered("streaming", [record(digest)])]
    assert one.name not in names and len(names) == 3
    assert one.name in [o.name for o in offered("streaming", [record("of an older source")])]


def test_rules_have_examples_for_every_realization() -> None:
    for family in primitives.FAMILIES.values():
        for name in family.kernels:
            kernel = registry.get(name)
            assert all(LAUNCH_RULES[kernel.launch].examples(v) for v in kernel.variants)


def test_the_commands_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "list", "--json", "-"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {row["primitive"] for row in listed["primitives"]} == NAMED
    assert {"cp_async/block", "producer_consumer/warp_shuffle"} <= set(listed["compositions"])
    assert run(["lab", "show", "block_reduction", "--json", "-"]) == 0
    shown = json.loads(capsys.readouterr().out)["primitives"][0]
    assert "row_block" in shown["used_by"]
    assert any(r["embodies"] and r["name"] == "block/block" for r in shown["realizations"])
    assert run(["lab", "show", "tree-reduce", "--json", "-"]) == 0
    rule, = json.loads(capsys.readouterr().out)["rules"]
    assert rule["licence"] == "mergeable" and "SOFTMAX" in rule["held_by"]
    assert run(["lab", "show", "attention"]) == 0
    assert "weighted reduction" in capsys.readouterr().out


def test_attention_has_a_materialised_and_streaming_realizations():
    found = {kernel: realization for realization, kernel, _ in decompose.treatments("attention")}
    assert found["-"] == "materialised"
    assert found["attention_mma"] == found["attention_simt"] == "streaming"
    assert decompose.treatments("softmax") == []
