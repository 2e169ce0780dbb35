"""--bisect, --profile, --trace, --memory."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ge2.cli import run
from ge2.commands import run_tools
from ge2.compiler.kernels import work
from ge2.problem import Problem, TensorSpec

EXAMPLE = ["run", "examples/digits/model.json", "--backend", "cpu", "-q"]


def result(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*EXAMPLE, *args, "--json", "-"]) == code
    return json.loads(capsys.readouterr().out)


def test_bisect_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert result(capsys, "--bisect")["bisect"]["ok"]


@pytest.mark.parametrize("node", ["relu_5", "relu_8", "softmax_11"])
def test_bisect_names_the_broken_node(capsys: pytest.CaptureFixture[str],
                                      monkeypatch: pytest.MonkeyPatch, node: str) -> None:
    original = run_tools._run

    def broken(model: Any, graph: Any, feeds: Any) -> dict[str, Any]:
        """Spoil one node; those after it get the spoilt value, as they would in a run."""
        values = original(model, graph, feeds)
        position = next(i for i, n in enumerate(graph.nodes) if n.name == node)
        name = graph.nodes[position].outputs[0]
        values[name][3, 4] += 0.5
        later = graph.copy()
        later.inputs = [*graph.inputs, *(v for n in graph.nodes[:position + 1] for v in n.outputs)]
        later.nodes = graph.nodes[position + 1:]
        later.outputs = [v for n in later.nodes for v in n.outputs]
        known = {**feeds, **{v: values[v] for v in later.inputs if v in values}}
        return {**values, **(original(model, later, known) if later.nodes else {})}

    monkeypatch.setattr(run_tools, "_run", broken)
    found = result(capsys, "--bisect", code=1)["bisect"]
    assert (found["node"], found["index"], found["over"]) == (node, [3, 4], 1)


def test_profile_covers_every_node(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    rows = result(capsys, "--profile", "--trace", str(trace))["profile"]
    assert rows[-1]["op"] == "SOFTMAX"
    assert all(row["seconds"] > 0 for row in rows)
    events = json.loads(trace.read_text())["traceEvents"]
    assert [e["name"] for e in events] == [row["node"] for row in rows]
    assert all(a["ts"] + a["dur"] == pytest.approx(b["ts"])
               for a, b in pairwise(events))


def test_memory(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(capsys, "--memory")["memory"]
    assert found["inputs"] == 360 * 64
    assert found["outputs"] == 360 * 10 * 4
    assert found["weights"] == 4 * (64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10)
    assert found["live_bound"] <= found["arena"] < found["peak"]


def test_work_of_a_problem() -> None:
    a, b = TensorSpec.dense("f16", (32, 64)), TensorSpec.dense("f16", (64, 16))
    bias = TensorSpec("f16", (32, 16), (0, 1))
    y = TensorSpec.dense("f16", (32, 16))
    product = Problem("GEMM_BIAS_ACT", (a, b, bias), (y,), (("trans_a", False),))
    assert work.flops_of(product) == 2 * 32 * 64 * 16
    assert work.bytes_of(product) == 2 * (32 * 64 + 64 * 16 + 16 + 32 * 16)
    x, w = TensorSpec.dense("f32", (1, 8, 6, 6)), TensorSpec.dense("f32", (4, 8, 3, 3))
    out = TensorSpec.dense("f32", (1, 4, 6, 6))
    assert work.flops_of(Problem("CONV2D", (x, w), (out,))) == 2 * 4 * 36 * 8 * 9


def test_nan_is_no_tolerance(capsys: pytest.CaptureFixture[str]) -> None:
    """No difference exceeds NaN: with it every output would match."""
    for option in ("--atol", "--rtol"):
        assert run([*EXAMPLE, "--check", option, "nan"]) == 2
        assert "no number" in capsys.readouterr().err


def test_lab_refuses_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["NOPE", "--shape", "4"], ["SOFTMAX", "--shape", "4y5"],
                  ["SOFTMAX", "--shape", "4x5", "--device", "nope"]):
        assert run(["lab", "gen", *wrong]) == 2
        assert "Error: " in capsys.readouterr().err
