"""Views cost no launch: kernels read them in place."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir.text import parse_graph
from ge2.compiler.passes.pipeline import optimize
from ge2.runtime.cpu import run_graph
from ge2.runtime.executor import Executable

# A view of x: f32[4, 6, 8] -> what reads it; each pair is one launch.
VIEWS = {
    "transpose": "v = TRANSPOSE(x, perm=[0, 2, 1])",
    "slice": "v = SLICE(x, starts=[1], ends=[5], axes=[1])",
    "step": "v = SLICE(x, starts=[0], ends=[8], axes=[2], steps=[2])",
    "flip": "v = FLIP(x, axes=[1])",
    "split": "u, v = SPLIT(x, axis=0, num_outputs=2)",
    "merge": "v = RESHAPE(x, shape=[4, 48])",
    "unsqueeze": "v = UNSQUEEZE(x, axes=[1])",
}
READERS = {
    "elementwise": "y = EXP(v)",
    "pad": "y = PAD(v, pads=[1, 0], axes=[-1])",
    "concat": "y = CONCAT(v, v, axis=0)",
    "reduce": "y = REDUCE_SUM(v, axes=[-1])",
}


def run(text: str) -> int:
    """Run a graph on the emulator, compare with NumPy, return its launches."""
    graph = parse_graph(text, infer=opdefs.infer)
    feeds = {name: np.random.default_rng(0).standard_normal(
        tuple(int(e) for e in graph.types[name].shape)).astype("f4") for name in graph.inputs}
    if "i" in feeds:
        feeds["i"] = np.array([2, 0, 1], "i8")
    executable = Executable(optimize(graph).graph, backend="emulate")
    found, expected = executable.run(feeds), run_graph(graph, feeds)
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6)
    return len(executable.plan().records)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_read_in_place(view, reader):
    launches = run(f"input x: f32[4, 6, 8]\n{VIEWS[view]}\n{READERS[reader]}\noutput y")
    assert launches == (2 if reader == "concat" else 1)  # one copy for each input


def test_a_matrix_product_reads_split_and_transposed_heads():
    assert run("""
        input x: f32[2, 5, 12]
        q, k, v = SPLIT(x, axis=2, num_outputs=3)
        a = RESHAPE(q, shape=[2, 5, 2, 2])
        b = TRANSPOSE(a, perm=[0, 2, 1, 3])
        c = RESHAPE(k, shape=[2, 5, 2, 2])
        d = TRANSPOSE(c, perm=[0, 2, 3, 1])
        y = MATMUL(b, d)
        output y
    """) == 1


def test_slices_of_a_view_are_gathered_in_place():
    assert run("""
        input x: f32[4, 9, 6]
        input i: i64[3]
        v = SLICE(x, starts=[2], ends=[8], axes=[1])
        y = GATHER(v, i, axis=1)
        output y
    """) == 1


def test_a_view_that_is_returned_is_copied_once():
    assert run("input x: f32[3, 5]\ny = TRANSPOSE(x, perm=[1, 0])\noutput y") == 1
