"""ATTENTION's own options against a loop over queries in float64."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir import Graph, Node
from ge2.compiler.ir.expr import ExprBundle, cast, coord, input
from ge2.compiler.ir.nodes import TensorType
from ge2.compiler.opdefs.decompose import decompose
from ge2.errors import GraphError, ShapeMismatch
from ge2.runtime.cpu import run_graph

ALIBI = ExprBundle((input(0) - input(1) * cast(coord(2) - coord(3), "f32"),))
ODD_KEYS = ExprBundle((input(0) * 2.0, (coord(3) + coord(1)).apply("bit_and", 1).eq(1)))


def _by_hand(q, k, v, allow, change):
    """Return (y, lse) of [B, H, S, D] operands; allow and change take (b, h, q, k)."""
    batch, heads, queries, size = q.shape
    group = heads // k.shape[1]
    y, lse = np.zeros((*q.shape[:3], v.shape[3])), np.full(q.shape[:3], -np.inf)
    for b, h, i in np.ndindex(batch, heads, queries):
        keys = [j for j in range(k.shape[2]) if allow(b, h, i, j)]
        scores = np.array([change(q[b, h, i] @ k[b, h // group, j] / size**0.5, b, h, i, j)
                           for j in keys])
        if keys:
            lse[b, h, i] = np.log(np.exp(scores).sum())
            y[b, h, i] = np.exp(scores - lse[b, h, i]) @ v[b, h // group, keys]
    return y, lse


def _operands(shape_q=(2, 4, 5, 8), shape_k=(2, 2, 6, 8)):
    draw = np.random.default_rng(sum(shape_q))
    return [draw.normal(size=s) for s in (shape_q, shape_k, shape_k)]


SLOPES = np.array([0.5, 0.25, 1.0, 2.0]).reshape(4, 1, 1)
CASES = {
    "statistics": ({}, [], lambda b, h, i, j: True, lambda s, *at: s),
    "causal": ({"is_causal": True, "query_offset": -1}, [], lambda b, h, i, j: j <= i - 1,
               lambda s, *at: s),
    "alibi": ({"score": ALIBI}, [None] * 4 + [SLOPES], lambda b, h, i, j: True,
              lambda s, b, h, i, j: s - SLOPES[h, 0, 0] * (i - j)),
    "chosen keys": ({"score": ODD_KEYS}, [], lambda b, h, i, j: (j + h) % 2 == 1,
                    lambda s, *at: 2 * s),
}


@pytest.mark.parametrize(("attrs", "more", "allow", "change"), CASES.values(), ids=CASES)
def test_options_and_their_composition(attrs, more, allow, change):
    arrays = [*_operands(), *more]
    attrs = {**attrs, "lse": True}
    wanted = _by_hand(*arrays[:3], allow, change)
    for found in (opdefs.reference("ATTENTION", arrays, attrs), _composed(arrays, attrs)):
        for y, expected in zip(found, wanted, strict=True):
            np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-12)


def _composed(arrays, attrs):
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    types = {n: TensorType("f64", a.shape) for n, a in zip(names, arrays, strict=True) if n}
    outs = opdefs.infer("ATTENTION", [types.get(n) for n in names], attrs)
    made = ["y", "lse"]
    graph = Graph(inputs=[n for n in names if n], outputs=made,
                  types={**types, **dict(zip(made, outs, strict=True))})
    graph.nodes = [Node("ATTENTION", "a", tuple(names), tuple(made), attrs)]
    parts = decompose(graph, lambda _graph, node: node.op != "ATTENTION")
    assert "ATTENTION" not in {node.op for node in parts.nodes}
    found = run_graph(parts, {n: a for n, a in zip(names, arrays, strict=True) if n})
    return [found[name] for name in made]


def test_packed_sequences_are_attentions_of_their_own():
    q, k, v = _operands((1, 4, 9, 8), (1, 2, 12, 8))
    starts = np.array([0, 4, 4, 9]), np.array([0, 5, 7, 12])
    length = np.array([4, 2, 5])
    slopes = SLOPES[None]
    attrs = {"is_causal": True, "lse": True, "score": ALIBI}
    for given in (None, length):
        y, lse = opdefs.reference("ATTENTION", [q, k, v, None, given, *starts, slopes], attrs)
        for b in range(3):
            rows, keys = (slice(s[b], s[b + 1]) for s in starts)
            n = (keys.stop - keys.start) if given is None else given[b]
            ahead = n - (rows.stop - rows.start)
            wanted = _by_hand(q[:, :, rows], k[:, :, keys], v[:, :, keys],
                              lambda b, h, i, j, n=n, d=ahead: j < n and j <= i + d,
                              lambda s, b, h, i, j: s - SLOPES[h, 0, 0] * (i - j))
            np.testing.assert_allclose(y[:, :, rows], wanted[0], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(lse[:, :, rows], wanted[1], rtol=1e-9)


def test_what_does_not_fit_is_refused():
    q, k, v = (TensorType("f32", s) for s in ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)))
    starts = TensorType("i32", (3,))
    with pytest.raises(GraphError, match="together"):
        opdefs.infer("ATTENTION", [q, k, v, None, None, starts], {})
    with pytest.raises(GraphError, match="no mask"):
        opdefs.infer("ATTENTION", [q, k, v, TensorType("bool", (3, 5)), None, starts, starts], {})
    with pytest.raises(ShapeMismatch, match="starts"):
        opdefs.infer("ATTENTION", [q, k, v, None, None, starts, TensorType("i32", (4,))], {})
    with pytest.raises(GraphError, match="formula"):
        opdefs.infer("ATTENTION", [q, k, v, None, None, None, None, TensorType("f32", (1,))], {})
    with pytest.raises(GraphError, match="scalars"):
        opdefs.infer("ATTENTION", [q, k, v], {"score": ALIBI})
