"""What remains to be done with a graph once its dimensions are known, before it is planned."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from . import opdefs
from .ir.nodes import Graph, present
from .passes.decompose import NATIVE, DecomposePass
from .passes.pipeline import optimize


def finish_graph(graph: Graph) -> Graph:
    """Return a concrete graph without compositions that had to wait for extents.

    The passes run again where there are any. Constants that they add are named by their contents,
    so that one name means the same array whatever the extents are.
    """
    waiting = any(opdefs.get(n.op).decompose and n.op not in NATIVE for n in graph.nodes)
    if not waiting or not DecomposePass()(graph).modified:
        return graph
    made = optimize(graph).graph
    names = {name: _content_name(name, array) for name, array in made.constants.items()
             if name not in graph.constants and name not in made.outputs}
    renamed = made.copy()
    renamed.constants = {names.get(n, n): array for n, array in made.constants.items()}
    renamed.types = {names.get(n, n): kind for n, kind in made.types.items()}
    renamed.nodes = [
        replace(node, inputs=tuple(names.get(v, v) for v in node.inputs))
        if any(v in names for v in present(node.inputs)) else node
        for node in made.nodes]
    return renamed


def _content_name(name: str, array: npt.NDArray[Any]) -> str:
    text = f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes()
    return f"{name}.{hashlib.sha256(text).hexdigest()[:12]}"
