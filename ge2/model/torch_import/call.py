"""One node of an exported program while it is translated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...compiler.ir.dim import Dim, Extent
from ...compiler.ir.nodes import TensorType
from ...contract import numpy_dtype
from ..node_writer import NodeWriter, Unmapped


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the graph, by name."""

    name: str


@dataclass(slots=True)
class Call:
    """A call of an ATen operator.

    Attributes:
        op: its name without namespace and overload ("linear").
        args: every argument by name, defaults filled: Tensor, numbers, extents, lists of these.
        dtype: element type of the (first) result; "" where it is no tensor.
        shape: of the (first) result.
        writer: appends nodes.
    """

    op: str
    args: Mapping[str, Any]
    dtype: str
    shape: tuple[Extent, ...]
    writer: NodeWriter

    def __getitem__(self, name: str) -> Any:
        return self.args.get(name)

    def value(self, name: str, dtype: str = "") -> str:
        """Return an argument as a graph value; a number becomes a constant.

        Args:
            name: of the argument; None gives "".
            dtype: what it is cast to; by default it stays as it is.
        """
        return self.as_value(self.args.get(name), dtype)

    def as_value(self, given: Any, dtype: str = "") -> str:
        """Return a tensor or number as a graph value."""
        if given is None:
            return ""
        if isinstance(given, Tensor):
            return self.cast(given.name, dtype)
        if isinstance(given, Dim):
            made = self.make("RESHAPE", self.writer.extents([given]), shape=())
            return self.cast(made, dtype)
        if not isinstance(given, bool | int | float):
            raise Unmapped(f"an argument {given!r}")
        kind = dtype or ("bool" if isinstance(given, bool)
                         else "i64" if isinstance(given, int) else "f32")
        return self.writer.constant(np.asarray(given, numpy_dtype(kind)))

    def cast(self, value: str, dtype: str) -> str:
        """Return a value in an element type."""
        if not dtype or self.writer.type(value).dtype == dtype:
            return value
        return self.make("CAST", value, to=dtype)

    def type(self, name: str) -> TensorType:
        """Return the type of an argument that is a tensor."""
        return self.writer.type(self.args[name].name)

    def make(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Append a ge2 node and return its first output; trailing absent inputs are dropped."""
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        return self.writer.op(op, *given, **attrs)
