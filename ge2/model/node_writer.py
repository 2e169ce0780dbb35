"""What importers share: appending typed nodes, and the report of what they cannot take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler import opdefs
from ..compiler.ir.dim import Dim, Extent, symbol, symbols
from ..compiler.ir.nodes import Graph, Node, TensorType
from ..compiler.opdefs.shapes import product
from ..errors import Ge2Error, GraphError, ModelError

_NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Imported:
    """An imported model.

    Attributes:
        graph: typed; named dimensions are kept.
        notes: what was decided on the way, for the user.
    """

    graph: Graph
    notes: tuple[str, ...] = ()


class Unmapped(Ge2Error):
    """A node uses something that ge2 cannot express; the message says what."""


class SameExtent(Exception):
    """Two named dimensions must be one for the model to make sense.

    Attributes:
        first, second: the names; the importer starts again with the second called as the first.
    """

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{second} = {first}")
        self.first = first
        self.second = second


class FixedExtent(Exception):
    """A named dimension has one extent only that makes sense of the model.

    Attributes:
        name, extent: the importer starts again with it.
    """

    def __init__(self, name: str, extent: int) -> None:
        super().__init__(f"{name} = {extent}")
        self.name = name
        self.extent = extent


class NodeWriter:
    """Appends nodes; a Builder for translations.

    Args:
        graph: receives nodes, types and constants.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.stem = "node"
        self._names: set[str] = set()

    def op(self, name: str, *inputs: str, **attrs: Any) -> str:
        """Append a node and return its first output."""
        return self.multi(name, 1, *inputs, **attrs)[0]

    def multi(self, name: str, n_outputs: int, *inputs: str, **attrs: Any) -> tuple[str, ...]:
        """Append a node and return its first n_outputs outputs.

        Raises:
            Ge2Error: the operator does not take these inputs or attributes.
            SameExtent: it would, were two named dimensions one.
            FixedExtent: it would, had a named dimension a certain extent.
        """
        given = {key: tuple(value) if isinstance(value, list) else value
                 for key, value in attrs.items() if value is not None}
        types = [self.graph.types[v] if v else None for v in inputs]
        try:
            made = opdefs.infer(name, types, given)
        except Ge2Error:
            _look_for_one_name(types)
            if name == "RESHAPE" and types[0] is not None:
                _look_for_an_extent(product(types[0].shape), product(given.get("shape", ())))
            raise
        label = self._label(name)
        outputs = []
        for index, kind in enumerate(made[:n_outputs]):
            value = self.graph.fresh(f"{label}.{index}" if n_outputs > 1 else label)
            self.graph.types[value] = kind
            outputs.append(value)
        self.graph.nodes.append(Node(name, label, tuple(inputs), tuple(outputs), given))
        return tuple(outputs)

    def constant(self, array: npt.NDArray[Any], stem: str = "") -> str:
        """Add an array to the graph's constants and return its name."""
        return self.graph.add_constant(stem or f"{self.stem}.constant", array)

    def scalar(self, number: float, like: str) -> str:
        """Return a constant scalar of a value's element type."""
        from ..contract import numpy_dtype

        return self.constant(np.asarray(number, numpy_dtype(self.type(like).dtype)))

    def extents(self, extents: Sequence[Extent]) -> str:
        """Return extents, symbolic ones too, as an i64 vector that is computed at run time."""
        pieces = [self.constant(np.asarray([e], np.int64)) if isinstance(e, int)
                  else self.op("RANGE", start=e, limit=e + 1, dtype="i64") for e in extents]
        return pieces[0] if len(pieces) == 1 else self.op("CONCAT", *pieces, axis=0)

    def type(self, value: str) -> TensorType:
        """Return the type of a value."""
        return self.graph.types[value]

    def finish(self, outputs: Mapping[str, str]) -> None:
        """Declare the outputs: name -> value. Values get these names.

        An input, a constant or a value that is already an output is copied. An output called like
        an input gets the name "<name>.output".
        """
        graph = self.graph
        outputs = {f"{name}.output" if name in graph.inputs else name: value
                   for name, value in outputs.items()}
        computed = {value for node in graph.nodes for value in node.outputs}
        renames: dict[str, str] = {}
        for name, value in outputs.items():
            if value not in computed or value in renames:
                self.stem = f"{name}.copy"
                value = self.op("IDENTITY", value)
                computed.add(value)
            renames[value] = name
        taken = set(graph.types) - set(renames)
        for name in outputs:
            if name in taken:  # a weight or an inner value of the same name gives way
                renames[name] = graph.fresh(f"{name}.inner")
        _rename(graph, renames)
        graph.outputs = list(outputs)

    def _label(self, op: str) -> str:
        label = self.stem if self.stem not in self._names else f"{self.stem}.{op.lower()}"
        number = 1
        while label in self._names:
            number += 1
            label = f"{self.stem}.{op.lower()}{number}"
        self._names.add(label)
        return label


def _rename(graph: Graph, renames: Mapping[str, str]) -> None:
    def swap(values: Iterable[str]) -> tuple[str, ...]:
        return tuple(renames.get(v, v) for v in values)

    graph.types = {renames.get(v, v): kind for v, kind in graph.types.items()}
    graph.constants = {renames.get(v, v): array for v, array in graph.constants.items()}
    graph.nodes = [Node(n.op, n.name, swap(n.inputs), swap(n.outputs), n.attrs)
                   for n in graph.nodes]


def _look_for_one_name(types: Sequence[TensorType | None]) -> None:
    """Raise SameExtent where two operands differ, counted from the last axis, in a name only."""
    shapes = [t.shape for t in types if t is not None]
    for left, right in pairwise(shapes):
        for a, b in zip(reversed(left), reversed(right), strict=False):
            if isinstance(a, Dim) and isinstance(b, Dim) and a != b:
                names = [name for extent in (a, b) for name in symbols(extent)
                         if repr(extent) == name]
                if len(names) == 2:
                    raise SameExtent(*names)


def _look_for_an_extent(have: Extent, wanted: Extent) -> None:
    """Raise FixedExtent where two products are equal for one extent of one dimension.

    Some exporters write the extent that they traced a model with.
    """
    if not isinstance(have, Dim) or len(have.terms) != 1:
        return
    for name in sorted(symbols(have)):
        rest = have // symbol(name)
        if name in symbols(rest) or (isinstance(wanted, int) and isinstance(rest, Dim)):
            continue
        try:
            extent = wanted // rest  # type: ignore[operator] # never int by Dim
        except GraphError:  # one divides the other by no means
            continue
        if isinstance(extent, int) and extent > 0 and extent * rest == wanted:
            raise FixedExtent(name, extent)


class UnsupportedModel(ModelError):
    """A model uses what ge2 cannot express.

    Attributes:
        problems: all of it.
    """

    def __init__(self, message: str, problems: Problems) -> None:
        super().__init__(message)
        self.problems = problems


@dataclass(slots=True)
class Problems:
    """What an importer could not take, listed all at once.

    Attributes:
        found: (what, why) -> names of the nodes.
        inputs: model inputs that would have to be constants.
        dimensions: named dimensions of the inputs; fixing some may help.
    """

    found: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    inputs: set[str] = field(default_factory=set)
    dimensions: list[str] = field(default_factory=list)

    def add(self, what: str, why: str, node: str) -> None:
        """Note that a node cannot be imported."""
        self.found.setdefault((what, why), []).append(node)

    def report(self, source: str) -> None:
        """Raise what was found.

        Raises:
            UnsupportedModel: something was; counts and names the nodes per operator and reason.
        """
        if not self.found:
            return
        nodes = sum(map(len, self.found.values()))
        kinds = len({what for what, _ in self.found})
        lines = [f"{source}: {kinds} operator{'s' * (kinds > 1)} in {nodes} "
                 f"node{'s' * (nodes > 1)} cannot be imported:"]
        for (what, why), names in sorted(self.found.items()):
            shown = ", ".join(repr(name) for name in names[:_NAMES_SHOWN])
            more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
            lines.append(f"  {what} ({len(names)}): {why}; at {shown}{more}")
        if self.inputs:
            lines.append(f"Fix {', '.join(sorted(self.inputs))} with: "
                         "ge2 import --constant NAME=FILE.npy")
        if self.dimensions:
            lines.append(f"Where extents are in the way, fix {', '.join(self.dimensions)} with: "
                         "ge2 import --sym NAME=N")
        raise UnsupportedModel("\n".join(lines), self)


def dimension_name(text: str) -> str:
    """Return a foreign name of a dimension as one that model files may hold."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return clean if clean and not clean[0].isdigit() else f"d_{clean}"
