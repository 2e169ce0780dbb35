"""Writing graphs in Python: inputs, one method per operator, outputs, save.

    g = GraphBuilder("mlp")
    x = g.input("x", "f32", ["batch", 64])
    w = g.weight("w", np.zeros((64, 10), np.float32))
    g.output("y", g.relu(x @ w))
    g.save("model.json")

The methods come from the operator definitions: `help(g.softmax)` shows inputs and attributes. A
wrong shape, dtype or attribute raises at the line that made it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..compiler import opdefs
from ..compiler.ir.dim import symbol
from ..compiler.ir.nodes import Graph, Node, TensorType
from ..contract import DTYPES, numpy_dtype
from ..errors import Ge2Error, GraphError
from .value import Operand, Value

if TYPE_CHECKING:
    from .model import Model
    from .operator_stubs import OperatorMethods
else:
    from .operator_methods import OperatorMethods

__all__ = ["GraphBuilder", "Operand", "Value"]


class GraphBuilder(OperatorMethods):
    """One graph under construction.

    Attributes:
        graph: the graph so far; every value in it has a type.
    """

    def __init__(self, name: str = "model") -> None:
        self.graph = Graph(name)
        self._renames: dict[str, str] = {}
        self._node_names: set[str] = set()
        self._inputs: set[str] = set()
        self._outputs: set[str] = set()
        self._places: defaultdict[str, list[int]] = defaultdict(list)  # of the nodes with a value

    def input(self, name: str, dtype: str, shape: Sequence[int | str]) -> Value:
        """Declare an input; a string in the shape is a named dimension.

        Raises:
            GraphError: the name is taken, or the dtype is unknown.
        """
        self._check_name(name)
        if dtype not in DTYPES:
            raise GraphError(f"input {name!r}: unknown element type", found=repr(dtype),
                             wanted=", ".join(DTYPES))
        extents = tuple(symbol(e) if isinstance(e, str) else int(e) for e in shape)
        self.graph.inputs.append(name)
        self._inputs.add(name)
        self.graph.types[name] = TensorType(dtype, extents)
        return Value(self, name)

    def weight(self, name: str, array: npt.NDArray[Any]) -> Value:
        """Add an array under a name; it is stored in the weights file."""
        self._check_name(name)
        return Value(self, self.graph.add_constant(name, array))

    def constant(self, value: npt.ArrayLike, dtype: str | None = None) -> Value:
        """Add an unnamed array or number; numbers become f32, i64 or bool."""
        array = np.asarray(value)
        if dtype is not None:
            array = array.astype(numpy_dtype(dtype))
        elif not isinstance(value, np.ndarray | np.generic):
            array = array.astype({"f": "f4", "i": "i8", "b": "?"}[array.dtype.kind])
        return Value(self, self.graph.add_constant("constant", array))

    def state(self, name: str, dtype: str, shape: Sequence[int]) -> Value:
        """Declare a buffer that outlives a call; set_state says what it holds next."""
        return self.input(name, dtype, shape)

    def set_state(self, state: Value, value: Value) -> None:
        """Say what a state holds after each call.

        Raises:
            GraphError: the types differ.
        """
        if state.type != value.type:
            raise GraphError(f"state {state.name!r} cannot hold {value.name!r}", found=value.type,
                             wanted=state.type)
        self.graph.aliases[value.name] = state.name

    def output(self, name: str, value: Value) -> None:
        """Make a value an output under a name of its own.

        An input, a weight or another output keeps its name; the new output is a copy of it.

        Raises:
            GraphError: the name is taken.
        """
        self._check_own(value)
        if value.name == name and name in self._outputs:
            raise GraphError(f"{name!r} is already an output")
        if value.name != name:
            self._check_name(name)
            if any(value.name in names
                   for names in (self._inputs, self._outputs, self.graph.constants)):
                value = self.apply_one("IDENTITY", value)
            self._rename(value.name, name)
        self.graph.outputs.append(name)
        self._outputs.add(name)

    def apply(self, op: str, *inputs: Operand | None, name: str | None = None, **attrs: Any
              ) -> tuple[Value, ...]:
        """Apply an operator by name; arrays and numbers become constants.

        Returns:
            One value per output.

        Raises:
            GraphError: unknown operator, wrong number of inputs, shapes or attributes.
        """
        definition = opdefs.get(op)
        node_name = self._node_name(name, op)
        names = self._operands(definition.inputs, inputs, node_name, op)
        clean = {k: tuple(v) if isinstance(v, list) else v
                 for k, v in attrs.items() if v is not None}
        types = [self.graph.types[n] if n else None for n in names]
        try:
            made = opdefs.infer(op, types, clean)
        except Ge2Error as error:
            operands = ", ".join(f"{n}: {self.graph.types[n]}" for n in names if n)
            raise GraphError(f"{op} {node_name!r}: {error}\n  operands: {operands}") from None
        outputs = tuple(self.graph.fresh(f"{node_name}.{i}" if len(made) > 1 else node_name)
                        for i in range(len(made)))
        self.graph.types.update(zip(outputs, made, strict=True))
        for value in {*names, *outputs}:
            self._places[value].append(len(self.graph.nodes))
        self.graph.nodes.append(Node(op, node_name, tuple(names), outputs, clean))
        return tuple(Value(self, output) for output in outputs)

    def apply_one(self, op: str, *inputs: Operand | None, **attrs: Any) -> Value:
        """Apply an operator that has one output."""
        value, = self.apply(op, *inputs, **attrs)
        return value

    def model(self, **options: Any) -> Model:
        """Return the graph as a model that can be called; options as for Model."""
        from .model import Model

        self._check_complete()
        return Model(self.graph.copy(), **options)

    def save(self, path: str | Path, *, weights: str | None = None,
             sample: Mapping[str, Any] | None = None) -> Path:
        """Write the model file and its weights.

        Args:
            path: a .json file, or a folder that gets model.json.
            weights: name of the weights file; default: the model file's stem.
            sample: the sample section, with files that exist in the folder.

        Returns:
            The model file's path.
        """
        from .writer import write_model

        self._check_complete()
        return write_model(self.graph, Path(path), weights=weights, sample=sample)

    def current_name(self, key: str) -> str:
        """Return the name of a value that was made under another."""
        return self._renames.get(key, key)

    def _check_complete(self) -> None:
        if not self.graph.outputs:
            raise GraphError("the graph has no output", hint="g.output('name', value)")

    def _check_name(self, name: str) -> None:
        if not name or any(ord(c) < 32 for c in name):
            raise GraphError("a name needs at least one character and no control characters",
                             found=repr(name))
        if name in self.graph.types:
            raise GraphError(f"the name {name!r} is already used")

    def _check_own(self, value: Value) -> None:
        if value.builder is not self:
            raise GraphError(f"{value.name!r} belongs to another graph")

    def _node_name(self, name: str | None, op: str) -> str:
        chosen = name or f"{op.lower()}_{len(self.graph.nodes)}"
        if chosen in self._node_names:
            raise GraphError(f"the node name {chosen!r} is already used")
        self._node_names.add(chosen)
        return chosen

    def _operands(self, formal: Sequence[str], inputs: Sequence[Operand | None], node: str,
                  op: str) -> list[str]:
        signature = f"{op}({', '.join(formal)})"
        required = sum(1 for f in formal if f[-1] not in "?*")
        variadic = bool(formal) and formal[-1].endswith("*")
        if len(inputs) < required or (len(inputs) > len(formal) and not variadic):
            raise GraphError(f"{node!r}: wrong number of inputs", found=len(inputs),
                             wanted=signature)
        partner = next((v.dtype for v in inputs if isinstance(v, Value)), None)
        names = [self._operand(value, partner) for value in inputs]
        while names and not names[-1]:
            names.pop()
        return names

    def _operand(self, value: Operand | None, partner: str | None) -> str:
        if value is None:
            return ""
        if isinstance(value, Value):
            self._check_own(value)
            return value.name
        if isinstance(value, bool | int | float) and partner is not None:
            return self.constant(value, partner).name
        return self.constant(value).name

    def _rename(self, old: str, new: str) -> None:
        graph = self.graph

        def swap(values: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(new if v == old else v for v in values)

        graph.types[new] = graph.types.pop(old)
        self._places[new] = self._places.pop(old)
        for place in self._places[new]:
            n = graph.nodes[place]
            graph.nodes[place] = Node(n.op, n.name, swap(n.inputs), swap(n.outputs), n.attrs)
        if old in graph.aliases:
            graph.aliases[new] = graph.aliases.pop(old)
        self._renames[old] = new
