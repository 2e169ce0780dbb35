"""Long graphs: load, passes and plan stay linear in the number of nodes."""

from __future__ import annotations

import gc
import time

import numpy as np

from ge2.compiler.concrete import concretize
from ge2.compiler.passes.pipeline import optimize
from ge2.compiler.plan import make_plan
from ge2.evidence.device import profile_for
from ge2.model import GraphBuilder


def seconds(layers: int) -> float:
    """Return the CPU time of optimising and planning so many layers of five operators."""
    g = GraphBuilder()
    x = first = g.input("x", "f32", ["batch", 64])
    w = g.weight("w", np.ones((64, 64), np.float32))
    for _ in range(layers):
        x = g.add(g.tanh(g.softmax(g.relu(x @ w))), first)
    g.output("y", x)
    gc.disable()  # a collection walks whatever other tests have left behind
    try:
        start = time.process_time()
        plan = make_plan(concretize(optimize(g.graph).graph, {"batch": 32}), profile_for("sm_90a"))
        spent = time.process_time() - start
    finally:
        gc.enable()
    assert len(plan.steps) >= 2 * layers
    return spent


def test_planning_is_linear() -> None:
    seconds(10)  # what the first plan of a process loads
    assert seconds(400) < 8 * seconds(100)
