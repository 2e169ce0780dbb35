"""Operators without a kernel of their own become those that have one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import opdefs
from ..ir.nodes import Graph, Node, TensorType
from .editor import Editor
from .pass_manager import PassResult

# Operators that can be decomposed but have a kernel that does all of it in one launch.
NATIVE = frozenset({
    "REDUCE_L1", "REDUCE_L2", "REDUCE_SUMSQUARE", "REDUCE_LOGSUM", "REDUCE_LOGSUMEXP",
})


@dataclass(frozen=True, slots=True)
class DecomposePass:
    """Expands every operator that has a decomposition and is not NATIVE."""

    name: str = "decompose"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        editor = Editor(graph)
        for node in editor.sweep():
            pending = [node]
            while pending:
                pending.extend(_expand(editor, pending.pop()))
        return editor.finish()


def _expand(editor: Editor, node: Node) -> Sequence[Node]:
    """Replace a node by its decomposition and return the new nodes; () where it has none."""
    definition = opdefs.get(node.op)
    if definition.decompose is None or node.op in NATIVE:
        return ()
    builder = _Builder(editor, node.name)
    values = definition.decompose(builder, node.inputs, editor.attrs(node))
    if values is None:
        return ()
    new = builder.named(values, node.outputs)
    editor.replace([node], new)
    return new


@dataclass(slots=True)
class _Builder:
    """What a decomposition appends nodes to."""

    editor: Editor
    stem: str
    nodes: list[Node] = field(default_factory=list)

    def op(self, name: str, *inputs: str, **attrs: Any) -> str:
        """Append a node and return its first output."""
        return self.multi(name, 1, *inputs, **attrs)[0]

    def multi(self, name: str, n_outputs: int, *inputs: str, **attrs: Any) -> tuple[str, ...]:
        """Append a node and return its first n_outputs outputs."""
        outputs = []
        for _ in range(n_outputs):
            outputs.append(self.editor.fresh(f"{self.stem}.{name.lower()}"))
            self.editor.graph.types[outputs[-1]] = TensorType("f32", ())  # reserves the name
        self.nodes.append(self.editor.node(name, inputs, outputs, attrs))
        return tuple(outputs)

    def constant(self, array: npt.NDArray[Any]) -> str:
        """Return a constant value."""
        return self.editor.graph.add_constant(self.editor.fresh(f"{self.stem}.constant"),
                                              np.asarray(array))

    def type(self, value: str) -> TensorType:
        """Return the type of a value."""
        return self.editor.type(value)

    def named(self, values: Sequence[str], outputs: Sequence[str]) -> list[Node]:
        """Return the nodes with values called by the names that the rest of the graph knows."""
        made = {v for node in self.nodes for v in node.outputs}
        rename: dict[str, str] = {}
        for value, out in zip(values, outputs, strict=False):
            if not out:
                continue
            if value in made and value not in rename:
                rename[value] = out
            else:  # an input passed through, or one value under two names
                self.nodes.append(self.editor.node("IDENTITY", [value], [out]))
        return [replace(node, inputs=tuple(rename.get(v, v) for v in node.inputs),
                        outputs=tuple(rename.get(v, v) for v in node.outputs))
                for node in self.nodes]
