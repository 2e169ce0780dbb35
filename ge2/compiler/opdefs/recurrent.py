"""LSTM, GRU and plain recurrent layers over a sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...contract import REQUIRED, AttrSpec, numpy_dtype
from ...errors import ShapeMismatch
from ..ir.dim import Extent
from ..ir.nodes import TensorType
from .opdef import FLOATS, Array, Arrays, Builder, OpDef, Types
from .shapes import optional, tensor

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DIRECTION = AttrSpec("direction", "str", "forward", ("forward", "reverse", "bidirectional"),
                      "order of time")
_HIDDEN = AttrSpec("hidden_size", "int", REQUIRED, doc="units")
_LAYOUT = AttrSpec("layout", "int", 0, doc="0: [S, B, I]; 1: [B, S, I]")
_CLIP = AttrSpec("clip", "float", None, doc="limit of the gates' arguments")


def _infer(op: str) -> Callable[[Types, dict[str, Any]], list[TensorType]]:
    def infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        x, w, r, bias = tensor(types, 0), tensor(types, 1), tensor(types, 2), optional(types, 3)
        hidden, directions = attrs["hidden_size"], 2 if attrs["direction"] == "bidirectional" else 1
        if x.rank != 3:
            raise ShapeMismatch(f"{op} takes a sequence of rank 3", found=x)
        time, batch = (x.shape[1], x.shape[0]) if attrs["layout"] else x.shape[:2]
        rows = _GATES[op] * hidden
        wanted: list[tuple[str, TensorType | None, tuple[Extent, ...]]] = [
            ("W", w, (directions, rows, x.shape[2])), ("R", r, (directions, rows, hidden)),
            ("B", bias, (directions, 2 * rows))]
        state = (batch, directions, hidden) if attrs["layout"] else (directions, batch, hidden)
        wanted += [(name, optional(types, 4 + i), state)
                   for i, name in enumerate(("initial_h", "initial_c")[:1 + (op == "LSTM")])]
        if op == "LSTM":
            wanted.append(("P", optional(types, 6), (directions, 3 * hidden)))
        for name, given, shape in wanted:
            if given is not None and given.shape != shape:
                raise ShapeMismatch(f"{op} {name} does not fit", found=given, wanted=f"{shape}")
        y: tuple[Extent, ...] = ((batch, time, directions, hidden) if attrs["layout"]
                                 else (time, directions, batch, hidden))
        states = [TensorType(x.dtype, state)] * (2 if op == "LSTM" else 1)
        return [TensorType(x.dtype, y), *states]

    return infer


class _Numpy:
    """The cell arithmetic on arrays."""

    def add(self, a: Any, b: Any) -> Any:
        return a + b

    def mul(self, a: Any, b: Any) -> Any:
        return a * b

    def sub_from_one(self, a: Any) -> Any:
        return 1 - a

    def matmul(self, a: Any, b: Any) -> Any:
        return a @ b

    def columns(self, a: Any, start: int, end: int) -> Any:
        return a[..., start:end]

    def clip(self, a: Any, limit: float | None) -> Any:
        return a if limit is None else np.clip(a, -limit, limit)

    def act(self, name: str, a: Any) -> Any:
        if name == "sigmoid":
            return 1 / (1 + np.exp(-a))
        return np.tanh(a) if name == "tanh" else np.maximum(a, 0)


class _Nodes:
    """The same arithmetic as nodes."""

    def __init__(self, builder: Builder, dtype: str) -> None:
        self.builder = builder
        self.one = builder.constant(np.ones((), numpy_dtype(dtype)))

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.op("ADD", a, b)

    def mul(self, a: Any, b: Any) -> Any:
        return self.builder.op("MUL", a, b)

    def sub_from_one(self, a: Any) -> Any:
        return self.builder.op("SUB", self.one, a)

    def matmul(self, a: Any, b: Any) -> Any:
        return self.builder.op("MATMUL", a, b)

    def columns(self, a: Any, start: int, end: int) -> Any:
        return self.builder.op("SLICE", a, axes=(-1,), starts=(start,), ends=(end,))

    def clip(self, a: Any, limit: float | None) -> Any:
        return a if limit is None else self.builder.op("CLIP", a, min=-limit, max=limit)

    def act(self, name: str, a: Any) -> Any:
        return self.builder.op(name.upper(), a)


Cell = Callable[..., tuple[Any, Any]]


def _lstm(m: Any, gates: Any, h: Any, c: Any, r: Any, rb: Any, p: Any,
          attrs: dict[str, Any]) -> tuple[Any, Any]:
    """Gates in ONNX order: input, output, forget, cell."""
    n = attrs["hidden_size"]
    total = m.add(m.add(gates, m.matmul(h, r)), rb)

    def part(index: int) -> Any:
        return m.columns(total, index * n, index * n + n)

    def peep(value: Any, index: int, state: Any) -> Any:
        return value if p is None else m.add(value, m.mul(m.columns(p, index * n, index * n + n),
                                                          state))

    def gate(value: Any) -> Any:
        return m.act("sigmoid", m.clip(value, attrs["clip"]))

    entry = gate(peep(part(0), 0, c))
    forget = m.sub_from_one(entry) if attrs["input_forget"] else gate(peep(part(2), 2, c))
    fresh = m.act("tanh", m.clip(part(3), attrs["clip"]))
    c = m.add(m.mul(forget, c), m.mul(entry, fresh))
    exit_gate = gate(peep(part(1), 1, c))
    return m.mul(exit_gate, m.act("tanh", c)), c


def _gru(m: Any, gates: Any, h: Any, c: Any, r: Any, rb: Any, p: Any,
         attrs: dict[str, Any]) -> tuple[Any, Any]:
    """Gates in ONNX order: update, reset, hidden."""
    n = attrs["hidden_size"]

    def cut(value: Any, first: int, last: int) -> Any:
        return m.columns(value, first * n, last * n)

    both = m.add(m.add(cut(gates, 0, 2), m.matmul(h, cut(r, 0, 2))), cut(rb, 0, 2))
    both = m.act("sigmoid", m.clip(both, attrs["clip"]))
    update, reset = cut(both, 0, 1), cut(both, 1, 2)
    if attrs["linear_before_reset"]:
        past = m.mul(reset, m.add(m.matmul(h, cut(r, 2, 3)), cut(rb, 2, 3)))
    else:
        past = m.add(m.matmul(m.mul(reset, h), cut(r, 2, 3)), cut(rb, 2, 3))
    fresh = m.act("tanh", m.clip(m.add(cut(gates, 2, 3), past), attrs["clip"]))
    return m.add(m.mul(m.sub_from_one(update), fresh), m.mul(update, h)), c


def _rnn(m: Any, gates: Any, h: Any, c: Any, r: Any, rb: Any, p: Any,
         attrs: dict[str, Any]) -> tuple[Any, Any]:
    total = m.add(m.add(gates, m.matmul(h, r)), rb)
    return m.act(attrs["activation"], m.clip(total, attrs["clip"])), c


_CELLS: dict[str, Cell] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


def _order(direction: str, index: int, steps: int) -> range:
    backward = direction == "reverse" or index == 1
    return range(steps - 1, -1, -1) if backward else range(steps)


def _reference(op: str) -> Callable[[Arrays, dict[str, Any]], list[Array]]:
    def reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
        x, w, r = (a for a in arrays[:3] if a is not None)
        bias = optional(arrays, 3)
        h0, c0, p = (optional(arrays, i) for i in (4, 5, 6))
        if attrs["layout"]:
            x = x.swapaxes(0, 1)
            h0, c0 = (None if s is None else s.swapaxes(0, 1) for s in (h0, c0))
        steps, batch = x.shape[:2]
        zero = np.zeros((w.shape[0], batch, attrs["hidden_size"]), x.dtype)
        h0, c0 = (zero if s is None else s for s in (h0, c0))
        y = np.zeros((steps, w.shape[0], batch, attrs["hidden_size"]), x.dtype)
        last_h, last_c = h0.copy(), c0.copy()
        rows = w.shape[1]
        for d in range(w.shape[0]):
            wb, rb = (np.zeros((rows,), x.dtype),) * 2 if bias is None else (
                bias[d, :rows], bias[d, rows:])
            gates = x @ w[d].T + wb
            h, c, rt = h0[d], c0[d], np.ascontiguousarray(r[d].T)
            for t in _order(attrs["direction"], d, steps):
                h, c = _CELLS[op](_Numpy(), gates[t], h, c, rt, rb,
                                  None if p is None else p[d], attrs)
                y[t, d] = h
            last_h[d], last_c[d] = h, c
        if attrs["layout"]:
            y = y.transpose(2, 0, 1, 3)
            last_h, last_c = last_h.swapaxes(0, 1), last_c.swapaxes(0, 1)
        return [y, last_h, last_c][:3 if op == "LSTM" else 2]

    return reference


class _Unrolled:
    """One recurrent node written out over its (known) number of steps."""

    def __init__(self, op: str, builder: Builder, inputs: Sequence[str],
                 attrs: dict[str, Any]) -> None:
        self.op, self.b, self.attrs = op, builder, attrs
        self.given = [*inputs, *[""] * (7 - len(inputs))]
        x = self.given[0]
        if attrs["layout"]:
            x = builder.op("TRANSPOSE", x, perm=(1, 0, 2))
        self.x = x
        self.kind = builder.type(x)
        self.math = _Nodes(builder, self.kind.dtype)

    def pick(self, value: str, index: Extent, axis: int = 0) -> str:
        """Return one slice along an axis, without the axis."""
        piece = self.b.op("SLICE", value, axes=(axis,), starts=(index,), ends=(index + 1,))
        return self.b.op("SQUEEZE", piece, axes=(axis,))

    def state(self, value: str, direction: int) -> str:
        """Return an initial state [B, H] of a direction, zero when absent."""
        if value:
            return self.pick(value, direction, 1 if self.attrs["layout"] else 0)
        zero = self.b.constant(np.zeros((1, 1), numpy_dtype(self.kind.dtype)))
        return self.b.op("EXPAND", zero, shape=(self.kind.shape[1], self.attrs["hidden_size"]))

    def direction(self, d: int, steps: int) -> tuple[list[str], str, str]:
        """Return (h of every step in time order, last h, last c)."""
        _, w, r, bias, h0, c0, p = self.given
        wt, rt = (self.b.op("TRANSPOSE", self.pick(v, d), perm=(1, 0)) for v in (w, r))
        gates = self.b.op("MATMUL", self.x, wt)
        rows = _GATES[self.op] * self.attrs["hidden_size"]
        zeros = np.zeros((rows,), numpy_dtype(self.kind.dtype))
        recurrent = self.b.constant(zeros)
        if bias:
            both = self.pick(bias, d)
            gates = self.math.add(gates, self.math.columns(both, 0, rows))
            recurrent = self.math.columns(both, rows, 2 * rows)
        h, c = self.state(h0, d), self.state(c0, d) if self.op == "LSTM" else ""
        peephole = self.pick(p, d) if p else None
        outs = [""] * steps
        for t in _order(self.attrs["direction"], d, steps):
            h, c = _CELLS[self.op](self.math, self.pick(gates, t), h, c, rt, recurrent, peephole,
                                   self.attrs)
            outs[t] = h
        return outs, h, c

    def stacked(self, values: Sequence[str], axis: int) -> str:
        """Return values joined along a new axis."""
        return self.b.op("CONCAT", *(self.b.op("UNSQUEEZE", v, axes=(axis,)) for v in values),
                         axis=axis)


def _decompose(op: str) -> Callable[..., Sequence[str] | None]:
    def decompose(builder: Builder, inputs: Sequence[str],
                  attrs: dict[str, Any]) -> Sequence[str] | None:
        loop = _Unrolled(op, builder, inputs, attrs)
        steps = loop.kind.shape[0]
        if not isinstance(steps, int) or not steps:
            return None
        runs = [loop.direction(d, steps) for d in range(
            2 if attrs["direction"] == "bidirectional" else 1)]
        layout = attrs["layout"]
        # [T, D, B, H], or [B, T, D, H] in layout 1.
        per_step = [loop.stacked([run[0][t] for run in runs], 1 if layout else 0)
                    for t in range(steps)]
        y = loop.stacked(per_step, 1 if layout else 0)
        states = [loop.stacked([h for _, h, _ in runs], 1 if layout else 0)]
        if op == "LSTM":
            states.append(loop.stacked([c for _, _, c in runs], 1 if layout else 0))
        return [y, *states]

    return decompose


def _op(name: str, inputs: tuple[str, ...], attrs: tuple[AttrSpec, ...], doc: str) -> OpDef:
    return OpDef(name, inputs, 3 if name == "LSTM" else 2,
                 (_HIDDEN, _DIRECTION, _LAYOUT, _CLIP, *attrs), _infer(name), _reference(name),
                 properties=frozenset({"order_sensitive"}), family="recurrent", dtypes=FLOATS,
                 decompose=_decompose(name), doc=doc)


_INPUTS = ("x", "W", "R", "B?", "initial_h?")

OPDEFS = (
    _op("LSTM", (*_INPUTS, "initial_c?", "P?"),
        (AttrSpec("input_forget", "bool", False, doc="forget gate = 1 - input gate"),),
        "Long short-term memory; outputs all h, last h, last c; gates input, output, forget, "
        "cell."),
    _op("GRU", _INPUTS,
        (AttrSpec("linear_before_reset", "bool", False, doc="reset after the product"),),
        "Gated recurrent unit; outputs all h, last h; gates update, reset, hidden."),
    _op("RNN", _INPUTS,
        (AttrSpec("activation", "str", "tanh", ("tanh", "relu", "sigmoid"), "of the sum"),),
        "Plain recurrent layer; outputs all h, last h."),
)
