"""The cpu backend: graphs on NumPy, symbols bound by the feeds, blocked formulas."""

from __future__ import annotations

import time

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir import Graph, Node, TensorType, symbol
from ge2.compiler.ir import expr as ex
from ge2.compiler.opdefs.formula import formula
from ge2.errors import DtypeMismatch, Ge2Error, MissingInput, ShapeMismatch
from ge2.runtime.cpu import CpuProgram, run_graph

B = symbol("B")
RNG = np.random.default_rng(1)


def mlp() -> Graph:
    graph = Graph(inputs=["x"], outputs=["y"], types={"x": TensorType("f32", (B, 8))})
    graph.add_constant("w", RNG.standard_normal((8, 3)).astype(np.float32))
    append(graph, "MATMUL", ["x", "w"], "h")
    append(graph, "GELU", ["h"], "g")
    append(graph, "RESHAPE", ["g"], "r", shape=(B * 3,))
    append(graph, "TRANSPOSE", ["r"], "t")
    append(graph, "ADD", ["t", "t"], "y")
    return graph


def append(graph: Graph, op: str, inputs: list[str], output: str, **attrs: object) -> None:
    types = [graph.types[v] for v in inputs]
    graph.types[output] = opdefs.infer(op, types, attrs)[0]
    graph.nodes.append(Node(op, f"n{len(graph.nodes)}", tuple(inputs), (output,), attrs))


def test_graph_runs_and_binds_symbols():
    graph = mlp()
    program = CpuProgram(graph)
    from math import erf
    for batch in (0, 1, 5):
        x = RNG.standard_normal((batch, 8)).astype(np.float32)
        h = x @ graph.constants["w"]
        wanted = h * 0.5 * (1 + np.vectorize(erf, otypes="d")(h / np.sqrt(2)))
        got = program.run({"x": x})["y"]
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, 2 * wanted.reshape(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op", "attrs"), [("ARGMAX", {"axis": 0}), ("TOPK", {"k": 2, "axis": 0}),
                                           ("SLICE", {"starts": (0,), "ends": (2,)})])
def test_a_size_that_a_node_does_not_allow_is_refused(op, attrs):
    graph = Graph(inputs=["x"], outputs=["y"], types={"x": TensorType("f32", (B, 8))})
    append(graph, op, ["x"], "y", **attrs)
    program = CpuProgram(graph)
    program.run({"x": np.ones((2, 8), np.float32)})
    with pytest.raises(ShapeMismatch, match="'n0'"):
        program.run({"x": np.ones((0, 8), np.float32)})


def test_what_numpy_refuses_names_the_node():
    graph = Graph(inputs=["x"], outputs=["y"], types={"x": TensorType("f32", (B, 8))})
    append(graph, "CONCAT", ["x", "x"], "y", axis=0)
    program = CpuProgram(graph)
    program._steps[0].attrs["axis"] = 5
    with pytest.raises(Ge2Error, match=r"node 'n0' \(CONCAT\)"):
        program.run({"x": np.ones((2, 8), np.float32)})


def test_f64_reference_is_closer_than_f32():
    graph = mlp()
    x = RNG.standard_normal((50, 8)).astype(np.float32)
    wide = run_graph(graph, {"x": x}, dtype="f64")["y"]
    assert wide.dtype == np.float64
    error = np.abs(run_graph(graph, {"x": x})["y"] - wide).max()
    assert 0 < error < 1e-5


def test_bad_feeds_are_named():
    graph = mlp()
    with pytest.raises(MissingInput, match="'x'"):
        run_graph(graph, {})
    with pytest.raises(DtypeMismatch, match="float64"):
        run_graph(graph, {"x": np.zeros((2, 8))})
    with pytest.raises(ShapeMismatch, match="wrong shape"):
        run_graph(graph, {"x": np.zeros((2, 7), np.float32)})


def test_outputs_do_not_alias_inputs():
    graph = Graph(inputs=["x"], outputs=["y", "x"], types={"x": TensorType("f32", (4, 2))})
    append(graph, "TRANSPOSE", ["x"], "y")
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    result = run_graph(graph, {"x": x})
    assert result["y"].flags.c_contiguous
    assert not any(np.shares_memory(x, array) for array in result.values())


@pytest.mark.parametrize("shape", [(), (0, 3), (5, 1, 70000), (300, 7, 111), (70000, 3)])
def test_blocked_formula_equals_direct_evaluation(shape):
    x, y, c = ex.input(0), ex.input(1), ex.cast(ex.coord(0), "f32") if shape else ex.const(1.0)
    s = ex.sigmoid(x * y + c)
    outputs = (ex.where(s > 0.5, s, x), ex.cast(s * 100.0, "i32"), ex.maximum(s, y))
    arrays = [RNG.standard_normal(shape).astype(np.float16),
              RNG.standard_normal(shape[-1:]).astype(np.float32)]
    results = [np.empty(shape, t) for t in ("f4", "i4", "f4")]
    if results[0].size:
        formula(outputs).run(arrays, results)
    coords = [np.arange(n).reshape(-1, *(1,) * (len(shape) - a - 1)) for a, n in enumerate(shape)]
    for got, wanted in zip(results, ex.evaluate(outputs, arrays, coords), strict=True):
        np.testing.assert_array_equal(got, np.broadcast_to(wanted, shape))


def test_ten_thousand_nodes_do_not_cost_quadratic_time():
    def seconds(n: int) -> float:
        graph = Graph(inputs=["v0"], outputs=[f"v{n}"], types={"v0": TensorType("f32", (4,))})
        for i in range(n):
            append(graph, ("NEG", "ABS", "FLIP")[i % 3], [f"v{i}"], f"v{i + 1}",
                   **({"axes": [0]} if i % 3 == 2 else {}))
        start = time.process_time()
        run_graph(graph, {"v0": np.ones(4, np.float32)})
        return time.process_time() - start

    seconds(100)
    # Ten times the nodes: quadratic work would take a hundred times as long.
    assert seconds(10000) < 40 * max(seconds(1000), 1e-3)
