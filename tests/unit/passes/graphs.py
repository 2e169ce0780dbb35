"""Graphs for pass tests: written as text, drawn at random, and compared by value."""

from __future__ import annotations

import numpy as np

from ge2.compiler import opdefs
from ge2.compiler.ir.dim import evaluate, symbols
from ge2.compiler.ir.text import format_graph, parse_graph
from ge2.compiler.ir.verify import verify
from ge2.compiler.passes.pass_manager import run_passes
from ge2.contract import DTYPES, numpy_dtype
from ge2.runtime.cpu import run_graph

TOLERANCE = {"f64": 1e-9, "f32": 2e-4, "f16": 2e-2, "bf16": 1e-1}


def parse(text, **constants):
    """Return the graph of a text; node types may be left out."""
    graph = parse_graph(text, constants, opdefs.infer)
    verify(graph, opdefs.infer)
    return graph


def feeds(graph, seed=0, **sizes):
    """Return random inputs; symbolic extents default to 3."""
    rng = np.random.default_rng(seed)
    result = {}
    for name in graph.inputs:
        kind = graph.types[name]
        named = {s: sizes.get(s, 3) for extent in kind.shape for s in symbols(extent)}
        shape = [evaluate(extent, named) for extent in kind.shape]
        if DTYPES[kind.dtype].kind == "float":
            values = rng.normal(0, 1, shape)
        else:
            values = rng.integers(0, 2, shape)
        result[name] = values.astype(numpy_dtype(kind.dtype))
    return result


def same_values(before, after, seed=0, **sizes):
    """Check that two graphs compute the same outputs."""
    given = feeds(before, seed, **sizes)
    expected, found = run_graph(before, given), run_graph(after, given)
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        tolerance = TOLERANCE.get(before.types[name].dtype, 0)
        np.testing.assert_allclose(found[name].astype("f8"), array.astype("f8"), rtol=tolerance,
                                   atol=tolerance, err_msg=name)


def apply(steps, graph, **sizes):
    """Run passes on a graph or text, check every invariant, return the result."""
    if isinstance(graph, str):
        graph = parse(graph)
    text = format_graph(graph)
    result = run_passes(graph, steps).graph
    assert format_graph(graph) == text, "a pass changed the graph that it was given"
    verify(result, opdefs.infer)
    same_values(graph, result, **sizes)
    return result


def ops(graph):
    """Return the operators in order."""
    return [node.op for node in graph.nodes]


def node(graph, op):
    """Return the only node of an operator."""
    found, = [n for n in graph.nodes if n.op == op]
    return found


_UNARY = ("RELU({})", "TANH({})", "NEG({})", "ABS({})", "SIGMOID({})", "GELU({})",
          "IDENTITY({})", "SOFTMAX({}, axis=0)", "SOFTMAX({})", "TRANSPOSE({})", "SILU({})",
          "ERF({})", "EXP({})", "SQUEEZE({})", "RESHAPE({}, shape=[4, 4])",
          "FLIP({}, axes=[1])", "LAYER_NORM({}, c1)", "RMS_NORM({}, c1)",
          "CAST({}, to=\"f64\")", "CLIP({}, min=-0.5, max=0.7)", "LOG_SOFTMAX({})",
          "SLICE({}, starts=[3, 0], ends=[-9, 4], steps=[-1, 1])", "CONCAT({}, axis=0)")
_REDUCED = ("REDUCE_MEAN({}, axes=[1])", "REDUCE_MAX({}, axes=[0])", "REDUCE_SUM({})",
            "REDUCE_L2({}, axes=[-1])", "SLICE({}, starts=[1], ends=[2])")
_BINARY = ("ADD", "MUL", "SUB", "MAX", "MATMUL", "MATMUL", "MUL")


def random_graph(rng, size=20, dtype="f32"):
    """Return a graph of 4 x 4 tensors (and rows, columns, scalars to broadcast) drawn at random."""
    lines = [f"input x: {dtype}[4, 4]", f"input y: {dtype}[4, 4]"]
    small = []
    for index, shape in enumerate(("4, 4", "4", "4, 1", "", "1, 4")):
        lines.append(f"const c{index}: {dtype}[{shape}]")
        small.append(f"c{index}")
    values = ["x", "y", "c0"]
    for index in range(size):
        name = f"v{index}"
        recent = values[-4:] if rng.random() < 0.8 else values
        left = recent[rng.integers(len(recent))]
        kind = rng.random()
        if kind < 0.1:  # something smaller, broadcast back
            lines.append(f"{name}.r = {_REDUCED[rng.integers(len(_REDUCED))].format(left)}")
            lines.append(f"{name} = SUB({left}, {name}.r)")
        elif kind < 0.5:
            step = _UNARY[rng.integers(len(_UNARY))].format(left)
            lines.append(f"{name} = {step}")
            if "f64" in step:
                lines[-1] = f"{name}.w = {step}"
                lines.append(f"{name} = CAST({name}.w, to=\"{dtype}\")")
        else:
            op = _BINARY[rng.integers(len(_BINARY))]
            right = values[rng.integers(len(values))]
            if op != "MATMUL" and rng.random() < 0.5:
                right = small[rng.integers(len(small))]
            pair = (left, right) if rng.random() < 0.7 or right in small[1:] else (right, left)
            lines.append(f"{name} = {op}({pair[0]}, {pair[1]})")
        if rng.random() < 0.7:  # keep magnitudes tame
            lines.append(f"{name}.n = TANH({name})")
            name += ".n"
        values.append(name)
    chosen = {values[-1], *(values[rng.integers(3, len(values))] for _ in range(2))}
    lines.append("output " + ", ".join(sorted(chosen)))
    return parse("\n".join(lines))
