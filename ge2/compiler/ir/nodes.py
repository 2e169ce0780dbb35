"""Graphs: typed single-assignment values and the nodes that make them.

A graph is a list of nodes in topological order. Values are strings, unique in their graph. Nodes
are immutable; passes build a new graph or replace entries of the node list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .types import TensorType


@dataclass(frozen=True, slots=True)
class Node:
    """One operator application.

    Attributes:
        op: operator name ("GEMM_BIAS_ACT").
        name: unique node name, shown in errors and profiles.
        inputs: value names; "" for an optional input that is absent.
        outputs: value names.
        attrs: attributes as given; defaults are filled in by opdefs.full_attrs.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Graph:
    """A model graph.

    Attributes:
        name: shown in messages.
        inputs, outputs: value names in call order.
        types: type of every value, constants included.
        nodes: in topological order.
        constants: values known at load time (weights, literals).
        aliases: output value -> input value that shares its buffer (state such as a KV cache).
    """

    name: str = "graph"
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    types: dict[str, TensorType] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def copy(self) -> Graph:
        """Return a graph that can be edited without touching this one (arrays are shared)."""
        return Graph(self.name, list(self.inputs), list(self.outputs), dict(self.types),
                     list(self.nodes), dict(self.constants), dict(self.aliases))

    def producers(self) -> dict[str, Node]:
        """Return the node that makes each computed value."""
        return {out: node for node in self.nodes for out in node.outputs}

    def users(self) -> dict[str, list[Node]]:
        """Return the nodes that read each value; a node that reads it twice is listed twice."""
        table: dict[str, list[Node]] = {value: [] for value in self.types}
        for node in self.nodes:
            for value in present(node.inputs):
                table[value].append(node)
        return table

    def fresh(self, stem: str) -> str:
        """Return a value name that is not taken yet."""
        return unused_name(stem, self.types.__contains__)

    def add_constant(self, stem: str, array: npt.NDArray[Any]) -> str:
        """Add an array as a constant value and return its name."""
        from ...contract import dtype_name

        name = self.fresh(stem)
        self.constants[name] = np.asarray(array)
        self.types[name] = TensorType(dtype_name(array.dtype), tuple(array.shape))
        return name


def unused_name(stem: str, taken: Callable[[str], bool]) -> str:
    """Return the stem, or the stem with a number that no name has but the number before it.

    Numbers are doubled, then halved: with as many names as nodes, counting would take too long.
    """
    if not taken(stem):
        return stem
    low, high = 0, 1
    while taken(f"{stem}.{high}"):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if taken(f"{stem}.{middle}") else (low, middle)
    return f"{stem}.{high}"


def present(values: Iterable[str]) -> Iterator[str]:
    """Yield the value names that are not absent optional inputs."""
    return (value for value in values if value)


__all__ = ["Graph", "Node", "TensorType", "present", "unused_name"]
