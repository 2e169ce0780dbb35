"""A transformer encoder layer with named batch and sequence dimensions."""

from __future__ import annotations

import numpy as np

from ge2.model import GraphBuilder
from ge2.model.model import Model


def encoder(width: int = 64, heads: int = 4, layers: int = 1, backend: str = "cpu") -> Model:
    """Return a model of x [batch, seq, width] -> y of the same shape, in f16."""
    g = GraphBuilder("encoder")
    rng = np.random.default_rng(0)
    names = iter(range(10**6))

    def weight(*shape: int):
        values = rng.standard_normal(shape) / np.sqrt(shape[0])
        return g.weight(f"w{next(names)}", values.astype(np.float16))

    def split(t):
        return g.transpose(g.reshape(t, shape=[0, 0, heads, width // heads]), perm=[0, 2, 1, 3])

    x = g.input("x", "f16", ["batch", "seq", width])
    for _ in range(layers):
        q, k, v = (g.add(g.matmul(x, weight(width, width)), weight(width)) for _ in range(3))
        s = g.matmul(split(q), g.transpose(split(k), perm=[0, 1, 3, 2]))
        p = g.softmax(g.mul(s, g.constant((width // heads) ** -0.5, "f16")), axis=-1)
        o = g.transpose(g.matmul(p, split(v)), perm=[0, 2, 1, 3])
        o = g.matmul(g.reshape(o, shape=[0, 0, width]), weight(width, width))
        x = g.layer_norm(g.add(x, o), weight(width), weight(width))
        h = g.gelu(g.add(g.matmul(x, weight(width, 4 * width)), weight(4 * width)))
        h = g.add(g.matmul(h, weight(4 * width, width)), weight(width))
        x = g.layer_norm(g.add(x, h), weight(width), weight(width))
    g.output("y", x)
    return g.model(backend=backend)
