"""Large graphs: building, load, passes and plan stay linear in the number of nodes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ge2.compiler.class_plans import ClassPlans
from ge2.compiler.concrete import concretize
from ge2.compiler.passes.pipeline import optimize
from ge2.compiler.plan import make_plan
from ge2.evidence.device import profile_for
from ge2.model import GraphBuilder, load
from ge2.problem import TensorSpec

DEVICE = profile_for("sm_90a")
BATCH = 32


def layers(count: int) -> GraphBuilder:
    """Return one long chain, all of whose layers read the input as well."""
    g = GraphBuilder()
    x = first = g.input("x", "f32", ["batch", 64])
    w = g.weight("w", np.ones((64, 64), np.float32))
    for _ in range(count // 5):
        x = g.add(g.tanh(g.softmax(g.relu(x @ w))), first)
    g.output("y", x)
    return g


def outputs(count: int) -> GraphBuilder:
    """Return many readers of one tensor, each an output with a weight of its own."""
    g = GraphBuilder()
    x = g.input("x", "f32", ["batch", 64])
    for number in range(count):
        g.output(f"y{number}", g.softmax(x) if number % 2 else g.add(x, np.ones(64, np.float32)))
    return g


def branches(count: int) -> GraphBuilder:
    """Return values that are all alive at once, until a chain of sums joins them."""
    g = GraphBuilder()
    x = total = g.input("x", "f32", ["batch", 64])
    kept = []
    for _ in range(count // 3):
        x = g.softmax(x)
        kept.append(x)
    for value in reversed(kept):
        total = g.softmax(g.add(total, value))
    g.output("y", total)
    return g


def seconds(make: Callable[[int], GraphBuilder], count: int, folder: Path) -> float:
    """Return the CPU time of everything before the kernels of a graph are compiled."""
    gc.collect()
    gc.disable()  # a collection walks whatever other tests have left behind
    try:
        start = time.process_time()
        graph = load(make(count).save(folder / f"{count}.json"), backend="cpu").graph
        graph = optimize(graph).graph
        plan = make_plan(concretize(graph, {"batch": BATCH}), DEVICE)
        feeds = {"x": TensorSpec.dense("f32", (BATCH, 64))}
        assert ClassPlans(graph, DEVICE).find({"batch": BATCH}, feeds) is not None
        spent = time.process_time() - start
    finally:
        gc.enable()
    assert len(plan.steps) >= count // 3
    return spent


@pytest.mark.parametrize("make", [layers, outputs, branches])
def test_large_graphs_take_time_by_their_nodes(make: Callable[[int], GraphBuilder],
                                               tmp_path: Path) -> None:
    seconds(make, 10, tmp_path)  # what the first plan of a process loads
    assert seconds(make, 1200, tmp_path) < 8 * seconds(make, 300, tmp_path)
