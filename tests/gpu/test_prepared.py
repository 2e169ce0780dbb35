"""Weights in the form that kernels want, on a GPU: calls of several sizes and streams, captures."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir.nodes import Graph
from ge2.compiler.ir.text import parse_graph
from ge2.runtime import cpu
from ge2.runtime.executor import Executable

cupy = pytest.importorskip("cupy")

PRODUCTS = """
input x: f32[rows, 384]
const w: f32[384, 512]
const v: f32[512, 384]
a = GEMM_BIAS_ACT(x, w, act="relu", f32="x3")
y = GEMM_BIAS_ACT(a, v, f32="x3")
output y
"""
CONVOLUTIONS = """
input x: f16[rows, 64, 16, 16]
const w: f16[64, 64, 3, 3]
const v: f16[72, 64, 3, 3]
a = CONV2D(x, w, pads=[1, 1, 1, 1])
y = CONV2D(a, v, pads=[1, 1, 1, 1])
output y
"""
CASES = {"products": (PRODUCTS, (70, 1024, 9000), 2e-6),
         "convolutions": (CONVOLUTIONS, (1, 8, 32), 2e-3)}


def _graph(text: str) -> Graph:
    graph = parse_graph(text, infer=opdefs.infer)
    draw = np.random.default_rng(0)
    for name, array in graph.constants.items():
        scale = np.prod(array.shape[1:]) ** -0.5
        graph.constants[name] = (scale * draw.standard_normal(array.shape)).astype(array.dtype)
    return graph


def _feed(graph: Graph, rows: int, seed: int) -> np.ndarray:
    kind = graph.types["x"]
    shape = (rows, *kind.shape[1:])
    return np.random.default_rng(seed).standard_normal(shape).astype(
        "f4" if kind.dtype == "f32" else "f2")


def _check(graph: Graph, x: np.ndarray, y: object, bound: float) -> None:
    wanted = cpu.run_graph(graph, {"x": x}, dtype="f64")["y"]
    error = np.abs(cupy.asnumpy(y).astype("f8") - wanted).max()
    assert error < bound * np.abs(wanted).max()


@pytest.mark.parametrize("name", CASES)
def test_calls_of_all_sizes_read_the_same_forms(name: str) -> None:
    text, sizes, bound = CASES[name]
    graph = _graph(text)
    executable = Executable(graph, "cuda")
    prepared = set()
    for seed, rows in enumerate((*sizes, *sizes)):
        x = _feed(graph, rows, seed)
        with cupy.cuda.Stream(non_blocking=True):
            y = executable.run({"x": cupy.asarray(x)})["y"]
            _check(graph, x, y, bound)
        plan = executable.plan({"x": x.shape})
        prepared.add(len(plan.preparations))
    assert max(prepared) == 2 and len(executable.weights._prepared) == 2


@pytest.mark.parametrize("name", CASES)
def test_a_captured_graph_keeps_them(name: str) -> None:
    text, (_, rows, _), bound = CASES[name]
    graph = _graph(text)
    executable = Executable(graph, "cuda")
    x = cupy.asarray(_feed(graph, rows, 0))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.synchronize()
        out = executable.run({"x": x})["y"]
        stream.begin_capture()
        executable.run({"x": x}, outputs={"y": out})
        captured = stream.end_capture()
        del executable
        for seed in (1, 2):
            fresh = _feed(graph, rows, seed)
            x.set(fresh)
            out.fill(np.nan)
            captured.launch()
            stream.synchronize()
            _check(graph, fresh, out, bound)
