"""What runs use of evidence: facts, hints, what is passed over, lock files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import ge2
from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.selector import Basis
from ge2.errors import Invalid, ModelError
from ge2.evidence import versions
from ge2.evidence.device import DeviceProfile, profile_for
from ge2.evidence.keys import device_key, problem_key, shape_text
from ge2.evidence.record import Decision
from ge2.evidence.records import Store, default_path
from ge2.launch.gemm_examples import gemm_problem
from ge2.model import GraphBuilder
from ge2.problem import Problem
from ge2.runtime import tuned
from ge2.runtime.tuned import TunedChooser, default_chooser
from ge2.tune.describe import Describer

H200 = profile_for("sm_90a")
PROBLEM = gemm_problem(("f16", "f16", "f16"), shape=(1024, 1024, 1024))


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("GE2_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("GE2_TUNE", raising=False)
    monkeypatch.setattr(tuned, "shipped", lambda: ())
    monkeypatch.setattr(versions, "driver_version", lambda: "580.1")
    monkeypatch.setattr(tuned, "compiler", lambda: "13.0")


def decided(problem: Problem, rank: int = 5, **changes: Any) -> Decision:
    """Return a decision for the rank-th legal candidate, made with today's kernels."""
    legal = [r.variant_id for r in selector.rank(problem, H200) if r.score is not None]
    variant = registry.variant(legal[rank])
    made = Decision(
        problem=problem_key(problem), op_type=problem.op_type, shape=shape_text(problem),
        device=device_key(H200), variant=variant.id, cubin="cubin",
        sources=Describer(H200).sources(problem, variant), numerics=variant.numerics,
        default=legal[0], time_us=8.0, default_us=10.0, noise=0.01, driver="580.1", nvrtc="13.0",
        tried=16, valid=16, space=29, date=time.time() - 3 * 86400)
    return msgspec.structs.replace(made, **changes)


def remember(*decisions: Decision) -> None:
    with Store(default_path()) as store:
        store.put(*decisions)


def chosen(device: DeviceProfile = H200, **options: Any) -> tuple[str, Basis]:
    choice = TunedChooser(**options)(PROBLEM, device)
    return choice.variant.id, choice.basis


DEFAULT = selector.select(PROBLEM, H200).variant.id


def test_without_evidence_the_rules_decide() -> None:
    assert chosen() == (DEFAULT, Basis())


def test_a_fact_decides_and_says_how_old_and_by_how_much() -> None:
    fact = decided(PROBLEM)
    remember(fact)
    variant, basis = chosen()
    assert variant == fact.variant != DEFAULT
    assert basis.kind == "tuned"
    assert "3 days ago" in basis.note
    assert "+25.0 % ± 1.0" in basis.note


def test_off_ignores_it(monkeypatch: pytest.MonkeyPatch) -> None:
    remember(decided(PROBLEM))
    assert chosen(mode="off")[0] == DEFAULT
    monkeypatch.setenv("GE2_TUNE", "off")
    assert chosen()[0] == DEFAULT
    assert default_chooser().mode == "off"


def test_another_driver_makes_it_a_hint() -> None:
    hint = decided(PROBLEM, driver="570.9")
    remember(hint)
    variant, basis = chosen()
    assert (variant, basis.kind) == (hint.variant, "hint")
    assert "570.9" in basis.note and "580.1" in basis.note


def test_another_gpu_never_decides() -> None:
    remember(decided(PROBLEM, device="NVIDIA H100|sm_90a|114"))
    variant, basis = chosen()
    assert (variant, basis.kind) == (DEFAULT, "rules")
    assert "another GPU (NVIDIA H100" in basis.note


def test_an_edited_kernel_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "compiled_digest", lambda *_: "now another")
    remember(decided(PROBLEM, sources="before the edit"))
    variant, basis = chosen()
    assert (variant, basis.kind) == (DEFAULT, "rules")
    assert "stale" in basis.note


def test_an_edit_that_changes_no_cubin_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "compiled_digest", lambda *_: "cubin")
    fact = decided(PROBLEM, sources="before a comment was edited")
    remember(fact)
    assert chosen()[0] == fact.variant


def test_a_variant_that_is_gone_is_passed_over() -> None:
    remember(decided(PROBLEM, variant="gemm/gone[X=1]"))
    variant, basis = chosen()
    assert variant == DEFAULT
    assert "no longer a candidate" in basis.note


def test_emulated_evidence_is_none() -> None:
    remember(decided(PROBLEM, device=f"emulated {device_key(H200)}"))
    assert chosen() == (DEFAULT, Basis())


def test_choices_of_one_model_do_not_change_while_it_lives() -> None:
    choose = TunedChooser()
    remember(decided(PROBLEM))
    assert choose(PROBLEM, H200).variant.id == DEFAULT
    assert TunedChooser()(PROBLEM, H200).variant.id != DEFAULT


def test_a_bad_mode_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_TUNE", "maybe")
    with pytest.raises(Invalid, match="GE2_TUNE"):
        TunedChooser()


# -- models and lock files ------------------------------------------------------------------------


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    g = GraphBuilder("small")
    x = g.input("x", "f32", ["batch", 64])
    g.output("y", g.softmax(x @ g.weight("w", np.ones((64, 32), np.float32))))
    g.save(tmp_path / "small")
    return tmp_path / "small" / "model.json"


def kernels(model: Any) -> dict[str, tuple[str, str]]:
    rows = model.explain(arch="sm_90a").plan.explain()
    return {row["op"]: (row["kernel"], row["basis"].kind) for row in rows}


def softmax_problem(path: Path) -> Problem:
    plan = ge2.load(path, backend="cpu").explain(arch="sm_90a").plan
    return next(s.problem for s in plan.steps if s.problem.op_type == "ROW")


def test_models_take_evidence_and_explain_it(model_file: Path) -> None:
    fact = decided(softmax_problem(model_file), rank=2)
    remember(fact)
    model = ge2.load(model_file, backend="cpu")
    assert kernels(model)["SOFTMAX"] == (fact.variant, "tuned")
    text = model.explain(arch="sm_90a").text()
    assert "tuned: measured 3 days ago" in text
    assert f"evidence {model.chooser.digest}" in text
    assert kernels(ge2.load(model_file, backend="cpu", tuning="off"))["SOFTMAX"][1] == "rules"


def test_a_pinned_model_keeps_its_kernels(model_file: Path) -> None:
    from ge2.cli import run

    before = decided(softmax_problem(model_file), rank=2)
    remember(before)
    assert run(["tune", "pin", str(model_file), "--arch", "sm_90a", "-q"]) == 0
    remember(decided(softmax_problem(model_file), rank=3, date=time.time()))
    assert kernels(ge2.load(model_file, backend="cpu"))["SOFTMAX"][0] != before.variant
    pinned = ge2.load(model_file, backend="cpu", tuning="pinned")
    assert kernels(pinned)["SOFTMAX"] == (before.variant, "pinned")
    assert {kind for _, kind in kernels(pinned).values()} == {"pinned"}


def test_pinned_without_a_lock_file_is_a_bad_file(model_file: Path) -> None:
    from ge2.cli import run

    with pytest.raises(ModelError, match="ge2 tune pin"):
        kernels(ge2.load(model_file, backend="cpu", tuning="pinned"))
    assert run(["explain", str(model_file), "--arch", "sm_90a", "--tuning", "pinned"]) == 3


@pytest.mark.parametrize(("edit", "says"), [
    (lambda t: t[: len(t) // 2], "no tuning lock file"),
    (lambda t: t.replace('"ge2_tuning": 1', '"ge2_tuning": 9'), "newer"),
    (lambda t: t.replace("row/row_", "row/gone_"), "no candidate"),
    (lambda t: t.replace('"numerics": "row-', '"numerics": "other-'), "another order"),
], ids=["cut", "newer", "gone", "numerics"])
def test_a_bad_lock_file_is_refused(model_file: Path, edit: Any, says: str) -> None:
    from ge2.cli import run

    assert run(["tune", "pin", str(model_file), "--arch", "sm_90a", "-q"]) == 0
    lock = model_file.with_suffix(".tuning.json")
    lock.write_text(edit(lock.read_text()))
    pinned = ge2.load(model_file, backend="cpu", tuning="pinned")
    with pytest.raises(ModelError, match=says):
        pinned.chooser(softmax_problem(model_file), H200)
