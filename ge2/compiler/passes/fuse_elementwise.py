"""Elementwise nodes that only feed each other become one FUSED_ELEMENTWISE node.

Groups grow from their last node backwards: a node joins the group that all of its readers are in,
if it is no graph output and has the shape of the group's result, so that nothing is computed twice
and nothing that anybody else needs disappears. Numbers become part of the formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ...contract import DTYPES
from .. import opdefs
from ..ir.dim import Extent
from ..ir.expr import Expr, ExprBundle, const, input, substitute, walk
from ..ir.nodes import Graph, Node
from ..opdefs.elementwise import formulas
from ..opdefs.shapes import broadcast
from .editor import Editor
from .pass_manager import PassResult

MAX_INPUTS = 16  # pointers and strides of one kernel
MAX_STEPS = 256  # statements of one kernel: compile time stays in proportion


@dataclass(frozen=True, slots=True)
class FuseElementwisePass:
    """Fuses chains and diamonds of elementwise nodes."""

    name: str = "fuse_elementwise"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        editor = Editor(graph)
        groups: dict[str, _Group] = {}
        for node in editor.backward():
            if fusible(editor, node):
                groups[node.name] = _join(editor, node, groups)
        for group in {id(group): group for group in groups.values()}.values():
            if len(group.members) > 1:
                _fuse(editor, group)
        return editor.finish()


def fusible(editor: Editor, node: Node) -> bool:
    """Return whether a node computes one value by a formula (and is not free as a view)."""
    return (len(node.outputs) == 1 and editor.licensed(node, "elementwise")
            and not editor.licensed(node, "view"))


@dataclass(slots=True)
class _Group:
    """Nodes that become one.

    Attributes:
        members: in reverse topological order; the first makes the result.
        shape: of the result, and of every member.
        inputs: values from outside.
        steps: size of the formula.
    """

    members: list[Node]
    shape: tuple[Extent, ...]
    inputs: set[str]
    steps: int
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.members[0].name


def _join(editor: Editor, node: Node, groups: dict[str, _Group]) -> _Group:
    steps = _size(node_formulas(editor, node))
    kind = editor.type(node.outputs[0])
    group = _common_group(editor, node, groups)
    if group is not None and kind.shape == group.shape:
        inputs = (group.inputs - {node.outputs[0]}) | set(node.inputs)
        if len(inputs) <= MAX_INPUTS and group.steps + steps <= MAX_STEPS:
            group.members.append(node)
            group.inputs = inputs
            group.steps += steps
            return group
    return _Group([node], kind.shape, set(node.inputs), steps)


@lru_cache(maxsize=4096)
def _size(formulas: tuple[Expr, ...]) -> int:
    return len(walk(formulas))


def _common_group(editor: Editor, node: Node, groups: dict[str, _Group]) -> _Group | None:
    value = node.outputs[0]
    if editor.is_output(value):
        return None
    found: _Group | None = None
    for reader in editor.readers(value):
        group = groups.get(reader.name)
        if group is None or (found is not None and group is not found):
            return None
        found = group
    return found


def node_formulas(editor: Editor, node: Node) -> tuple[Expr, ...]:
    """Return the expressions of an elementwise node over its inputs."""
    dtypes = [editor.type(value).dtype for value in node.inputs]
    return formulas(opdefs.get(node.op), editor.attrs(node), dtypes)


def reads_coordinates(formulas: Sequence[Expr]) -> bool:
    """Return whether expressions depend on where an element is, or on run-time scalars."""
    return any(e.kind in ("coord", "scalar") for e in walk(formulas))


def _fuse(editor: Editor, group: _Group) -> None:
    members = group.members[::-1]
    inner = {node.outputs[0] for node in members}
    outer = list(dict.fromkeys(v for node in members for v in node.inputs if v not in inner))
    leaves, inputs = _leaves(editor, outer, group.shape)
    values: dict[str, Expr] = dict(leaves)
    for node in members:
        operands = {i: values[v] for i, v in enumerate(node.inputs)}
        values[node.outputs[0]] = substitute(node_formulas(editor, node), operands)[0]
    root = members[-1]
    attrs = {"expr": ExprBundle((values[root.outputs[0]],)),
             "dtypes": editor.type(root.outputs[0]).dtype}
    made = editor.node("FUSED_ELEMENTWISE", inputs, root.outputs, attrs, root.name)
    editor.replace(members, [made])


def _leaves(editor: Editor, values: Sequence[str], shape: tuple[Extent, ...],
            ) -> tuple[dict[str, Expr], list[str]]:
    """Return an expression for each value from outside, and those that stay inputs."""
    kept = [v for v in values if editor.number(v) is None]
    shapes = [editor.type(v).shape for v in kept]
    # A number of higher rank than all tensors decides the result's rank: it must stay.
    if not kept or broadcast("FUSED_ELEMENTWISE", shapes) != shape:
        kept = list(values)
    leaves: dict[str, Expr] = {}
    for value in values:
        compute = DTYPES[editor.type(value).dtype].compute
        array = editor.constant(value)
        if value in kept or array is None:
            leaves[value] = input(kept.index(value), compute)
        else:
            leaves[value] = const(array.reshape(()).item(), compute)
    return leaves, kept
