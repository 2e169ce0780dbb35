"""A graph under rewriting: who makes and who reads each value, kept up to date per edit.

Every operation costs time in the nodes that it touches, never in the size of the graph.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import opdefs
from ..ir import properties
from ..ir.nodes import Graph, Node, TensorType, present, unused_name
from .pass_manager import PassResult


class Editor:
    """Edits a copy of a graph and returns it as a PassResult.

    Attributes:
        graph: types and constants of the copy; its node list is stale until finish.
        modified: whether anything was edited.
    """

    def __init__(self, graph: Graph) -> None:
        self._source = graph
        self.graph = graph.copy()
        self.modified = False
        self._outputs = frozenset(graph.outputs)
        self._slots: list[list[Node]] = [[node] for node in graph.nodes]
        self._slot: dict[str, int] = {node.name: i for i, node in enumerate(graph.nodes)}
        self._producer: dict[str, Node] = {}
        self._readers: dict[str, dict[str, Node]] = {}
        readers = self._readers
        for node in graph.nodes:
            for value in node.outputs:
                self._producer[value] = node
            for value in node.inputs:
                if value in readers:
                    readers[value][node.name] = node
                else:
                    readers[value] = {node.name: node}
        self._producer.pop("", None)  # absent outputs and inputs
        readers.pop("", None)

    # -- questions ----------------------------------------------------------------------------

    def sweep(self) -> Iterator[Node]:
        """Yield the nodes in topological order, as edits before them left them."""
        for slot in self._slots:
            yield from self._alive(slot, [node.name for node in slot])

    def backward(self) -> Iterator[Node]:
        """Yield the nodes in reverse topological order."""
        for slot in reversed(self._slots):
            yield from self._alive(slot, [node.name for node in reversed(slot)])

    def _alive(self, slot: list[Node], names: list[str]) -> Iterator[Node]:
        for name in names:
            if len(slot) == 1:  # nearly always
                if slot[0].name == name:
                    yield slot[0]
                continue
            at = _index(slot, name)
            if at is not None:
                yield slot[at]

    def producer(self, value: str) -> Node | None:
        """Return the node that makes a value; None for inputs and constants."""
        return self._producer.get(value)

    def made_by(self, value: str, *ops: str) -> Node | None:
        """Return the node that makes a value if it is one of ops."""
        node = self._producer.get(value)
        return node if node is not None and node.op in ops else None

    def readers(self, value: str) -> list[Node]:
        """Return the nodes that read a value, each once."""
        return list(self._readers.get(value, {}).values())

    def only_reader(self, value: str) -> Node | None:
        """Return the node that alone reads a value, if nothing else needs it."""
        readers = self._readers.get(value, {})
        if len(readers) != 1 or value in self._outputs:
            return None
        return next(iter(readers.values()))

    def is_output(self, value: str) -> bool:
        """Whether a value is an output of the graph."""
        return value in self._outputs

    def position(self, node: Node) -> tuple[int, int]:
        """Return a key that grows in topological order."""
        slot = self._slot[node.name]
        return slot, _index(self._slots[slot], node.name) or 0

    def type(self, value: str) -> TensorType:
        """Return the type of a value."""
        return self.graph.types[value]

    def constant(self, value: str) -> npt.NDArray[Any] | None:
        """Return the array of a constant value."""
        return self.graph.constants.get(value)

    def number(self, value: str) -> float | None:
        """Return the value of a constant with one element, whatever its rank."""
        array = self.graph.constants.get(value)
        return float(array.reshape(())) if array is not None and array.size == 1 else None

    def attrs(self, node: Node) -> dict[str, Any]:
        """Return all attributes of a node, defaults filled."""
        return opdefs.full_attrs(node.op, node.attrs)

    def licensed(self, node: Node, name: str) -> bool:
        """Return whether a node's operator has a property."""
        return properties.licensed(node.op, name)

    # -- edits --------------------------------------------------------------------------------

    def node(self, op: str, inputs: Sequence[str], outputs: Sequence[str],
             attrs: Mapping[str, Any] | None = None, name: str = "") -> Node:
        """Return a new node with inferred output types; replace or insert puts it in."""
        made = Node(op, name or outputs[0], tuple(inputs), tuple(outputs), dict(attrs or {}))
        types = [self.graph.types[v] if v else None for v in made.inputs]
        for value, kind in zip(outputs, opdefs.infer(op, types, made.attrs), strict=False):
            self.graph.types[value] = kind
        return made

    def replace(self, old: Sequence[Node], new: Sequence[Node]) -> None:
        """Put new in the place of the last of old; old disappears.

        Between them the new nodes must make every value of old that is still read.
        """
        self.modified = True
        slot, _ = max(map(self.position, old))
        # New nodes go behind everything that is left of this slot before the last old node.
        last = max(old, key=self.position)
        mine = {node.name for node in old}
        names = [node.name for node in self._slots[slot]]
        at = sum(name not in mine for name in names[: names.index(last.name)])
        for node in old:
            self._unregister(node)
        self._slots[slot][at:at] = new
        for node in new:
            self._slot[node.name] = slot
            self._register(node)

    def insert_before(self, node: Node, new: Sequence[Node]) -> None:
        """Put new nodes directly before a node."""
        self.modified = True
        slot = self._slot[node.name]
        at = _index(self._slots[slot], node.name) or 0
        self._slots[slot][at:at] = new
        for made in new:
            self._slot[made.name] = slot
            self._register(made)

    def remove(self, node: Node) -> None:
        """Take a node out; nothing may read its outputs any more."""
        self.modified = True
        self._unregister(node)

    def redirect(self, old: str, new: str) -> bool:
        """Make everything that reads old read new, and drop the node that makes old.

        A graph output keeps its name: then the value new is renamed to old instead.

        Returns:
            False, with nothing changed, where neither is possible.
        """
        node = self._producer[old]
        if len(node.outputs) != 1 or self.type(old) != self.type(new):
            return False
        if not self.is_output(old):
            self.remove(node)
            self._rename_reads(old, new)
            return True
        source = self._producer.get(new)
        if source is None or self.is_output(new):
            return False
        self.remove(node)
        self._rename_reads(new, old)
        outputs = tuple(old if v == new else v for v in source.outputs)
        self._swap(source, replace(source, outputs=outputs))
        return True

    def join_constant(self, old: str, new: str) -> None:
        """Make everything that reads constant old read the equal constant new."""
        self.modified = True
        self._rename_reads(old, new)
        del self.graph.constants[old]

    def with_inputs(self, node: Node, inputs: Sequence[str]) -> Node:
        """Give a node other inputs and return it."""
        made = replace(node, inputs=tuple(inputs))
        self._swap(node, made)
        return made

    def fresh(self, stem: str) -> str:
        """Return an unused value (and node) name and reserve it."""
        return unused_name(stem, lambda name: name in self.graph.types or name in self._slot)

    def finish(self) -> PassResult:
        """Return the edited graph."""
        if not self.modified:
            return PassResult(self._source, False)
        graph = self.graph
        graph.nodes = [node for slot in self._slots for node in slot]
        alive = {*graph.inputs, *graph.constants}
        for node in graph.nodes:
            alive.update(present(node.outputs))
        graph.types = {name: kind for name, kind in graph.types.items() if name in alive}
        return PassResult(graph, True)

    # -- bookkeeping --------------------------------------------------------------------------

    def _register(self, node: Node) -> None:
        for value in present(node.outputs):
            self._producer[value] = node
        for value in present(node.inputs):
            self._readers.setdefault(value, {})[node.name] = node

    def _unregister(self, node: Node) -> None:
        slot = self._slots[self._slot.pop(node.name)]
        at = _index(slot, node.name)
        assert at is not None, node.name
        del slot[at]
        for value in present(node.outputs):
            self._producer.pop(value, None)
        for value in present(node.inputs):
            self._readers[value].pop(node.name, None)

    def _swap(self, old: Node, new: Node) -> None:
        """Put new, a node of the same name, in the place of old."""
        self.modified = True
        index = self._slot[old.name]
        at = _index(self._slots[index], old.name) or 0
        self._unregister(old)
        self._slots[index].insert(at, new)
        self._slot[new.name] = index
        self._register(new)

    def _rename_reads(self, old: str, new: str) -> None:
        for reader in self.readers(old):
            inputs = tuple(new if value == old else value for value in reader.inputs)
            self._swap(reader, replace(reader, inputs=inputs))


def _index(slot: list[Node], name: str) -> int | None:
    for at, node in enumerate(slot):
        if node.name == name:
            return at
    return None


def has_any(graph: Graph, ops: Container[str]) -> bool:
    """Return whether a graph has a node of one of ops: without, a pass has nothing to look at."""
    return any(node.op in ops for node in graph.nodes)


def is_float(kind: TensorType) -> bool:
    """Return whether a tensor holds floating-point values."""
    return kind.dtype in ("f32", "f16", "bf16", "f64")


def all_equal(array: npt.NDArray[Any], value: float) -> bool:
    """Return whether every element of an array equals value."""
    return bool(np.all(array == value))
