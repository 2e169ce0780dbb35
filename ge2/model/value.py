"""A tensor of a graph under construction, and what may stand in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy.typing as npt

from ..compiler.ir.dim import Extent
from ..compiler.ir.nodes import TensorType

if TYPE_CHECKING:
    from .builder import GraphBuilder

Operand = Union["Value", npt.NDArray[Any], float]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of the graph under construction.

    Attributes:
        builder: the graph it belongs to.
        key: the name it was made under.
    """

    builder: GraphBuilder
    key: str

    @property
    def name(self) -> str:
        """Its name in the graph; output() may change it."""
        return self.builder.current_name(self.key)

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        return self.builder.graph.types[self.name]

    @property
    def shape(self) -> tuple[Extent, ...]:
        """Extents; a named dimension is a Dim."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """Element type ("f32")."""
        return self.type.dtype

    def __repr__(self) -> str:
        return f"<{self.name}: {self.type}>"

    def __add__(self, other: Operand) -> Value:
        return self.builder.apply_one("ADD", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.builder.apply_one("ADD", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.builder.apply_one("SUB", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.builder.apply_one("SUB", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.builder.apply_one("MUL", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.builder.apply_one("MUL", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.builder.apply_one("DIV", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.builder.apply_one("DIV", other, self)

    def __matmul__(self, other: Operand) -> Value:
        return self.builder.apply_one("MATMUL", self, other)

    def __neg__(self) -> Value:
        return self.builder.apply_one("NEG", self)

    # NumPy would otherwise take `array + value` apart element by element.
    __array_ufunc__ = None
