"""What a type checker sees of the builder: mypy, not pytest, runs this file's checks."""

from __future__ import annotations

from typing import assert_type

import numpy as np

from ge2.model import GraphBuilder, Value


def graph() -> GraphBuilder:
    """Return a graph; each wrong line is marked with what a type checker must say of it."""
    g = GraphBuilder("typed")
    x = g.input("x", "f32", ["batch", 4])
    y = g.softmax(x @ np.ones((4, 4), np.float32), axis=-1, name="soft")
    assert_type(y, Value)
    assert_type(g.topk(y, k=2), tuple[Value, ...])
    g.output("y", g.reshape(g.gelu(y, approximate="tanh"), shape=[x.shape[0], 2, 2]))
    g.output("z", g.not_(g.less(g.max(y, 1.0, x), 0.5)))  # a word of Python's gets a _
    return g


def wrong(g: GraphBuilder, x: Value) -> None:
    """Never run."""
    g.sofmax(x)  # type: ignore[attr-defined]
    g.softmax(x, axes=1)  # type: ignore[call-arg]
    g.softmax(x, axis="1")  # type: ignore[arg-type]
    g.gelu(x, approximate="tnah")  # type: ignore[arg-type]
    g.matmul(x)  # type: ignore[call-arg]
