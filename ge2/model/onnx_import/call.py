"""One ONNX node while it is translated: what rules read from it and write with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...compiler.ir.dim import Extent
from ...compiler.ir.nodes import TensorType
from ..node_writer import NodeWriter, Unmapped
from .values import Known, Tensor, type_name

Array = npt.NDArray[Any]


class NotKnown(Unmapped):
    """A rule needs an input's elements, but they are computed at run time.

    Attributes:
        value: the input's ONNX name.
    """

    def __init__(self, value: str) -> None:
        super().__init__(f"input {value!r} must be known when the model is imported")
        self.value = value


@dataclass(slots=True)
class Call:
    """One node.

    Attributes:
        op: the operator's name. opset: the version of the standard operators.
        name: of the node.
        inputs: None where an optional one is absent.
        input_names: their ONNX names.
        n_outputs: how many it has; wanted: which of them have a name.
        attrs: as plain Python values; tensors as arrays.
        writer: appends nodes.
    """

    op: str
    opset: int
    name: str
    inputs: Sequence[Known | Tensor | None]
    input_names: Sequence[str]
    wanted: Sequence[bool]
    writer: NodeWriter
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def n_inputs(self) -> int:
        """Number of inputs, absent ones counted."""
        return len(self.inputs)

    def has(self, index: int) -> bool:
        """Return whether an input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int) -> str:
        """Return an input's name in the graph; "" when absent."""
        if not self.has(index):
            return ""
        given = self.inputs[index]
        if isinstance(given, Tensor):
            return given.name
        assert isinstance(given, Known)
        if not given.stored:
            self._store(given)
        return given.name

    def _store(self, given: Known) -> None:
        kind = type_name(given.dtype)
        if given.is_symbolic:
            made = self.writer.extents(list(given.array.reshape(-1)))
            if given.array.ndim != 1:
                made = self.writer.op("RESHAPE", made, shape=given.array.shape, allowzero=True)
            given.name = made if kind == "i64" else self.writer.op("CAST", made, to=kind)
        else:
            given.name = self.writer.constant(given.array, given.name)
        given.stored = True

    def values(self, *indices: int) -> list[str]:
        """Return inputs (all when none are named) without trailing absent ones."""
        names = [self.value(i) for i in indices or range(len(self.inputs))]
        while names and not names[-1]:
            names.pop()
        return names

    def type(self, index: int) -> TensorType:
        """Return the type of an input that is given."""
        given = self.inputs[index]
        if isinstance(given, Tensor):
            return self.writer.type(given.name)
        assert isinstance(given, Known)
        return TensorType(type_name(given.dtype), given.array.shape)

    def known(self, index: int) -> Array | None:
        """Return the elements of an input, None when absent; symbolic extents are Dims.

        Raises:
            NotKnown: they are computed at run time.
        """
        if not self.has(index):
            return None
        given = self.inputs[index]
        if not isinstance(given, Known):
            raise NotKnown(self.input_names[index])
        return given.array

    def elements(self, index: int) -> list[Any] | None:
        """Return the elements of an input as a list, None when absent."""
        found = self.known(index)
        return None if found is None else [
            e.item() if isinstance(e, np.generic) else e for e in found.reshape(-1)]

    def scalar(self, index: int, default: Any = None) -> Any:
        """Return a one-element input as a number."""
        found = self.elements(index)
        if not found:
            return default
        if len(found) != 1:
            raise Unmapped(f"input {self.input_names[index]!r} has more than one element")
        return found[0]

    def attr_or_list(self, name: str, index: int) -> list[Any] | None:
        """Return what older opsets give as an attribute and newer ones as an input."""
        return self.attrs[name] if name in self.attrs else self.elements(index)

    def take(self, *names: str, **renamed: str) -> dict[str, Any]:
        """Return attributes under their own names, or renamed (ONNX name = ge2 name)."""
        pairs = {**{n: n for n in names}, **renamed}
        return {ours: self.attrs[theirs] for theirs, ours in pairs.items() if theirs in self.attrs}

    def only(self, *names: str) -> None:
        """Refuse attributes that a rule does not know."""
        for name in self.attrs:
            if name not in names:
                raise Unmapped(f"attribute {name}")

    def make(self, name: str, *inputs: str, **attrs: Any) -> str:
        """Append a ge2 node and return its first output."""
        return self.writer.op(name, *inputs, **attrs)

    def rank(self, index: int) -> int:
        """Return the rank of an input."""
        return self.type(index).rank

    def extent(self, index: int, axis: int) -> Extent:
        """Return one extent of an input."""
        return self.type(index).shape[axis]
