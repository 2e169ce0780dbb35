"""Recompute cheap intermediates where keeping them would exceed a memory budget.

The pass works on concrete graphs: it follows which values are live at each node, and where most
bytes are, it computes a value that lies idle there again before its next use. The values that the
copy of the node reads must be there at that time, be recomputed in turn, or be kept longer when
they are much smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ...contract import DTYPES
from ..ir import properties
from ..ir.nodes import Graph, Node, present
from .pass_manager import PassResult

ALIGNMENT = 256
_MOST_COPIES = 8  # nodes that one recomputation may take

Cost = Callable[[Graph, Node], float]


@dataclass(frozen=True, slots=True)
class Recomputed:
    """One value that is computed again instead of kept.

    Attributes:
        value: its name. before: the node that needed it again.
        nodes: how many nodes were copied for it.
        saved_bytes: how much less is live where most was. microseconds: estimated time added.
    """

    value: str
    before: str
    nodes: int
    saved_bytes: int
    microseconds: float


@dataclass(frozen=True, slots=True)
class RematerializePass:
    """Rewrites a concrete graph until the bytes that are live at once are within budget.

    Attributes:
        budget: bytes.
        cost: estimated microseconds of a node.
    """

    budget: int
    cost: Cost
    name: str = "rematerialize"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph; as small as it gets where the budget cannot be met."""
        made, recomputed = rematerialize(graph, self.budget, self.cost)
        return PassResult(made, bool(recomputed))


def rematerialize(graph: Graph, budget: int, cost: Cost) -> tuple[Graph, list[Recomputed]]:
    """Return the graph within budget, or as close as recomputation gets, and what was done."""
    done: list[Recomputed] = []
    live = _Live(graph)
    while live.most > budget:
        found = _best(live, cost)
        if found is None:
            break
        live, step = found
        done.append(step)
    return live.graph if done else graph, done


def elements(graph: Graph, value: str) -> int:
    """Return the number of elements of a value of a concrete graph."""
    size = 1
    for extent in graph.types[value].shape:
        size *= int(extent)  # type: ignore[arg-type] # concrete
    return size


class _Live:
    """Which buffers of a graph are live at which node.

    Attributes:
        graph: concrete.
        root: value -> the value whose buffer it lies in; absent for what is not in the arena.
        first, last: root -> index of the first and last node that touches it.
        bytes_at: live bytes at each node. most: the largest of them.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.root: dict[str, str] = {}
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        external = {*graph.inputs, *graph.constants}
        for index, node in enumerate(graph.nodes):
            for value in node.outputs:
                source = node.inputs[0] if node.inputs else ""
                is_view = properties.licensed(node.op, "view") and source
                if is_view and (source in external or source in self.root):
                    if source in external:
                        external.add(value)
                    else:
                        self.root[value] = self.root[source]
                elif value in graph.outputs:
                    external.add(value)
                else:
                    self.root[value] = value
            for value in (*present(node.inputs), *node.outputs):
                if value in self.root:
                    self.first.setdefault(self.root[value], index)
                    self.last[self.root[value]] = index
        self.bytes_at = self._bytes_at()
        self.most = max(self.bytes_at, default=0)

    def nbytes(self, value: str) -> int:
        """Return the padded size of a value's dense buffer."""
        size = elements(self.graph, value) * DTYPES[self.graph.types[value].dtype].itemsize
        return -(-size // ALIGNMENT) * ALIGNMENT

    def _bytes_at(self) -> list[int]:
        changes = [0] * (len(self.graph.nodes) + 1)
        for value, first in self.first.items():
            changes[first] += self.nbytes(value)
            changes[self.last[value] + 1] -= self.nbytes(value)
        live, result = 0, []
        for change in changes[:-1]:
            live += change
            result.append(live)
        return result

    def peaks(self) -> int:
        """Return the number of nodes at which most is live."""
        return sum(1 for nbytes in self.bytes_at if nbytes == self.most)

    def uses(self, root: str) -> list[int]:
        """Return the nodes that read a buffer."""
        return [index for index, node in enumerate(self.graph.nodes)
                if any(self.root.get(value) == root for value in present(node.inputs))]


def _best(live: _Live, cost: Cost) -> tuple[_Live, Recomputed] | None:
    """Return the graph after the recomputation that lowers the peak at the least time a byte."""
    peak = live.bytes_at.index(live.most)
    tries: list[tuple[float, int, float, _Copy]] = []
    for root, first in live.first.items():
        if not first < peak < live.last[root]:
            continue
        uses = live.uses(root)
        if peak in uses:
            continue
        at = min(index for index in uses if index > peak)
        copy = _Copy(live, root, at)
        if copy.make():
            spent = sum(cost(live.graph, node) for node in copy.originals)
            tries.append((spent / live.nbytes(root), len(tries), spent, copy))
    for _, _, spent, copy in sorted(tries, key=lambda t: t[:2]):
        after = _Live(copy.applied())
        if (after.most, after.peaks()) < (live.most, live.peaks()):
            user = live.graph.nodes[copy.at].name
            return after, Recomputed(copy.root, user, len(copy.originals),
                                     live.most - after.bytes_at[peak], spent)
    return None


@dataclass(slots=True)
class _Copy:
    """The nodes that make a buffer again before node `at`.

    Attributes:
        live: of the graph as it is.
        root: whose buffer.
        at: the node that needs it.
        originals: nodes to copy, in order.
    """

    live: _Live
    root: str
    at: int
    originals: list[Node] = field(default_factory=list)

    def make(self) -> bool:
        """Collect the nodes; False where one may not or need not be computed again."""
        producers = self.live.graph.producers()
        wanted = {value for index in self.live.uses(self.root) if index >= self.at
                  for value in present(self.live.graph.nodes[index].inputs)
                  if self.live.root.get(value) == self.root}
        chosen: dict[str, Node] = {}
        longer = 0
        todo = sorted(wanted)
        while todo:
            node = producers[todo.pop()]
            if node.name in chosen:
                continue
            if not properties.licensed(node.op, "rematerializable") or not properties.licensed(
                    node.op, "deterministic") or len(chosen) >= _MOST_COPIES:
                return False
            chosen[node.name] = node
            for value in present(node.inputs):
                if not self._is_there(value):
                    if value not in self.live.root:
                        return False
                    small = self.live.nbytes(self.live.root[value])
                    if self.live.root[value] == self.root or not self._fits(longer + small):
                        todo.append(value)
                    else:
                        longer += small
        self.originals = [node for node in self.live.graph.nodes if node.name in chosen]
        return True

    def _fits(self, longer: int) -> bool:
        return longer <= self.live.nbytes(self.root) // 2

    def _is_there(self, value: str) -> bool:
        """Whether a value can be read before node `at` without keeping it any longer."""
        graph = self.live.graph
        if value in graph.aliases.values():
            return False
        root = self.live.root.get(value)
        if root is None:
            return True
        return root != self.root and self.live.last[root] >= self.at

    def applied(self) -> Graph:
        """Return the graph with the copies in front of node `at`, read from there on."""
        graph = self.live.graph.copy()
        names: dict[str, str] = {}
        copies: list[Node] = []
        for node in self.originals:
            outputs = []
            for value in node.outputs:
                names[value] = graph.fresh(f"{value}.again")
                graph.types[names[value]] = graph.types[value]
                outputs.append(names[value])
            copies.append(replace(
                node, name=_node_name(graph, node, copies), outputs=tuple(outputs),
                inputs=tuple(names.get(value, value) for value in node.inputs)))
        late = [replace(node, inputs=tuple(names.get(v, v) for v in node.inputs))
                for node in graph.nodes[self.at:]]
        graph.nodes = [*graph.nodes[:self.at], *copies, *late]
        return graph


def _node_name(graph: Graph, node: Node, copies: list[Node]) -> str:
    taken = {other.name for other in (*graph.nodes, *copies)}
    return next(name for name in _names(node.name) if name not in taken)


def _names(stem: str) -> Iterator[str]:
    yield f"{stem}.again"
    number = 1
    while True:
        yield f"{stem}.again.{number}"
        number += 1
