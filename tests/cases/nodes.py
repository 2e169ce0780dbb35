"""Every operator as small graphs of one node: what each has to run on every backend."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ge2.compiler import opdefs
from ge2.compiler.ir import Graph, Node, TensorType
from ge2.compiler.ir.expr import ExprBundle, input, maximum, tanh
from ge2.compiler.opdefs import OPS
from ge2.compiler.passes.pipeline import optimize
from ge2.contract import DTYPES, REQUIRED, numpy_dtype
from ge2.runtime.cpu import run_graph
from ge2.runtime.executor import Executable

Shape = tuple[int, ...]

TOLERANCE = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2, "f64": 1e-11}


@dataclass(frozen=True)
class Example:
    """One node.

    Attributes:
        op: the operator.
        shapes: of the inputs; None for one that is absent.
        attrs: as the node has them.
        spans: input -> (low, high) of integers drawn for it.
        dtypes: of inputs that do not have the main dtype; default: the first one allowed.
        low: floats are drawn from [low, 1).
    """

    op: str
    shapes: tuple[Shape | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    spans: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    dtypes: Mapping[int, str] = field(default_factory=dict)
    low: float = 0.1

    @property
    def label(self) -> str:
        """Name for messages."""
        return f"{self.op} {self.shapes} {dict(self.attrs)}"

    def graph(self, main: str) -> Graph:
        """Return the graph with this main dtype."""
        graph = Graph(name=self.op.lower())
        names = []
        for slot, shape in enumerate(self.shapes):
            name = f"in{slot}" if shape is not None else ""
            names.append(name)
            if shape is not None:
                graph.types[name] = TensorType(self._dtype(slot, main), shape)
                graph.inputs.append(name)
        types = [graph.types[name] if name else None for name in names]
        made = opdefs.infer(self.op, types, dict(self.attrs))
        graph.outputs = [f"out{i}" for i in range(len(made))]
        graph.types.update(zip(graph.outputs, made, strict=True))
        graph.nodes.append(Node(self.op, "node", tuple(names), tuple(graph.outputs),
                                dict(self.attrs)))
        return graph

    def _dtype(self, slot: int, main: str) -> str:
        if slot in self.dtypes:
            return self.dtypes[slot]
        own = OPS[self.op].other.get(OPS[self.op].input_name(slot).partition("[")[0])
        if own is None or main in own:
            return main
        return own[0]

    def feeds(self, graph: Graph) -> dict[str, np.ndarray]:
        """Return floats of [low, 1), by default in every function's domain; small whole numbers."""
        draw = np.random.default_rng(zlib.crc32(self.label.encode()))
        result = {}
        for name in graph.inputs:
            kind = graph.types[name]
            shape = tuple(int(e) for e in kind.shape)
            low, high = self.spans.get(int(name[2:]), (0, 2 if kind.dtype == "bool" else 4))
            if DTYPES[kind.dtype].kind == "float":
                values = draw.uniform(self.low, 1.0, shape)
            else:
                values = draw.integers(low, high, shape)
            result[name] = values.astype(numpy_dtype(kind.dtype))
        return result


_WINDOW = {"kernel_shape": (2, 3), "strides": (2, 1), "pads": (1, 0, 0, 1)}
_FILL = {"to": "f32", "direction": "LEFT"}

# op -> (shapes, attributes, spans of integer inputs)
_TABLE: dict[str, Sequence[tuple[Any, ...]]] = {
    "ADD_LAYER_NORM": [([(3, 8), (3, 8), (8,), (8,)],)],
    "ADD_RMS_NORM": [([(3, 8), (3, 8), (8,)],)],
    "ARGMAX": [([(3, 5, 2)], {"axis": -2}), ([(4, 1)], {"axis": 1, "keepdims": False})],
    "ARGMIN": [([(3, 5, 2)], {"axis": 1, "select_last_index": True}), ([(4, 7)], {})],
    "ATTENTION": [([(2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8)], {"is_causal": True}),
                  ([(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), (3, 3)], {})],
    "ATTENTION_GRAD": [([(2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8), (2, 4, 5, 8), (2, 4, 5),
                         (2, 4, 5, 8), (5, 6), (2,)], {"is_causal": True}, {7: (1, 7)}),
                       ([(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3),
                         (1, 2, 3, 4)], {})],
    "AVG_POOL": [([(2, 3, 7, 8)], _WINDOW), ([(1, 2, 9)], {"kernel_shape": (3,)})],
    "BATCH_NORM": [([(2, 3, 4, 5), (3,), (3,), (3,), (3,)],)],
    "CONCAT": [([(2, 3), (2, 1), (2, 0)], {"axis": -1}), ([(1, 4), (3, 4)], {"axis": 0})],
    "CONV1D": [([(2, 3, 9), (4, 3, 3), (4,)], {"pads": (1, 1)})],
    "CONV2D": [([(2, 4, 7, 6), (6, 2, 3, 3), (6,)], {"group": 2, "pads": (1, 1, 1, 1)}),
               ([(1, 8, 5, 8), (4, 8, 1, 1)], {"act": "relu"}),
               ([(1, 3, 8, 8), (3, 1, 3, 3)], {"group": 3, "strides": (2, 2)})],
    "CONV_TRANSPOSE": [([(1, 2, 4, 5), (2, 3, 3, 3), (3,)], {"strides": (2, 2)}),
                       ([(1, 2, 4), (2, 3, 3)], {}),
                       ([(1, 1, 2, 3, 2), (1, 2, 2, 2, 2)], {})],
    "CROSS_ENTROPY": [([(3, 5), (3,)], {}, {1: (0, 5)})],
    "CUMPROD": [([(3, 6)], {"axis": 1}), ([(5, 2)], {"axis": 0, "reverse": True})],
    "CUMSUM": [([(3, 6)], {"axis": -1, "exclusive": True}), ([(1,)], {"axis": 0})],
    "DEPTH_TO_SPACE": [([(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"})],
    "DEQUANTIZE": [([(2, 4), (4,), (4,)], {"axis": 1}), ([(3,), ()], {})],
    "DYNAMIC_QUANTIZE": [([(3, 4)],)],
    "EINSUM": [([(2, 3, 4), (2, 4, 5)], {"equation": "bij,bjk->bik"}),
               ([(3, 4)], {"equation": "ij->j"})],
    "EXPAND": [([(3, 1)], {"shape": (2, 3, 4)}), ([(1,)], {"shape": (0,)})],
    "EYE_LIKE": [([(3, 4)], {"k": 1})],
    "FLATTEN": [([(2, 3, 4)], {"axis": -1})],
    "FLIP": [([(2, 3)], {"axes": (0, 1)})],
    "FUSED_ELEMENTWISE": [([(3, 4), (4,)], {
        "expr": ExprBundle((maximum(tanh(input(0)) + input(1), 0.5),))}, {}, {0: "f32", 1: "f32"})],
    "GATHER": [([(5, 3), (2, 2)], {"axis": 0}, {1: (-5, 5)}),
               ([(2, 5), (1,)], {"axis": -1}, {1: (0, 5)}), ([(5, 3), (0,)], {})],
    "GATHER_ELEMENTS": [([(4, 3), (2, 3)], {"axis": 0}, {1: (-4, 4)})],
    "GATHER_ND": [([(4, 3, 2), (5, 2)], {}, {1: (0, 3)}),
                  ([(2, 4, 3), (2, 1)], {"batch_dims": 1}, {1: (0, 4)})],
    "GEMM_BIAS_ACT": [([(5, 7), (7, 6), (6,)], {"act": "relu"}),
                      ([(2, 7, 5), (2, 6, 7), None, (5, 6)], {"trans_a": True, "trans_b": True})],
    "GLOBAL_AVG_POOL": [([(2, 3, 4, 5)],)],
    "GLOBAL_MAX_POOL": [([(2, 3, 7)],)],
    "GROUP_NORM": [([(2, 4, 3, 3), (4,), (4,)], {"num_groups": 2})],
    "GRU": [([(3, 2, 4), (1, 9, 4), (1, 9, 3), (1, 18)], {"hidden_size": 3})],
    "HARDMAX": [([(3, 5)],)],
    "INSTANCE_NORM": [([(2, 3, 4, 4), (3,), (3,)],)],
    "LAYER_NORM": [([(2, 3, 8), (8,), (8,)],), ([(2, 3, 4), (3, 4)], {"axis": 1})],
    "LOG_SOFTMAX": [([(3, 5)],), ([(2, 4, 3)], {"axis": 1})],
    "LP_NORM": [([(3, 5)], {"p": 1}), ([(3, 5, 4)], {"axis": 1})],
    "LP_POOL": [([(1, 2, 6, 6)], {"kernel_shape": (2, 2)})],
    "LRN": [([(1, 6, 3, 3)], {"size": 3})],
    "LSTM": [([(3, 2, 4), (1, 12, 4), (1, 12, 3)], {"hidden_size": 3}),
             ([(2, 1, 3), (2, 8, 3), (2, 8, 2), (2, 16)],
              {"hidden_size": 2, "direction": "bidirectional"})],
    "MASKED_SOFTMAX": [([(3, 5), (3, 5)],)],
    "MATMUL": [([(3, 4), (4, 5)],), ([(2, 1, 3, 4), (3, 4, 2)],), ([(4,), (4,)],)],
    "MATMUL_INTEGER": [([(3, 4), (4, 5), (), ()],), ([(2, 3, 4), (4, 5), (3,), (5,)],),
                       ([(4,), (4, 5)],)],
    "MATMUL_NBITS": [([(3, 40), (6, 2, 16), (6, 2), (6, 1), (6,)], {"block_size": 32}),
                     ([(2, 3, 20), (5, 2, 8), (10,)], {"block_size": 16, "act": "relu"})],
    "MAX_POOL": [([(2, 3, 7, 8)], _WINDOW), ([(1, 1, 3, 4, 5)], {"kernel_shape": (2, 2, 2)})],
    "MEAN_VARIANCE_NORM": [([(2, 3, 4, 4)],)],
    "NORM_GEMM": [([(3, 8), (8,), (8, 6), (8,), (6,)], {"norm": "LAYER_NORM", "act": "gelu"}),
                  ([(2, 3, 8), (8,), (6, 8)], {"norm": "RMS_NORM", "trans_b": True})],
    "ONE_HOT": [([(2, 3), (2,)], {"depth": 4}, {0: (0, 4)}, {0: "i64"})],
    "PAGED_ATTENTION": [
        ([(2, 4, 1, 16), (5, 2, 16, 16), (5, 2, 16, 16), (2, 2), (2,)], {},
         {3: (0, 5), 4: (0, 33)}),
        ([(1, 2, 3, 4), (4, 1, 5, 4), (4, 1, 5, 3), (1, 2), (1,), (3, 10)],
         {"is_causal": True, "lse": True}, {3: (0, 4), 4: (3, 11)})],
    "PAD": [([(2, 3)], {"pads": (1, 0, 2, 1), "value": 2.0}),
            ([(3, 4)], {"pads": (1, 2), "axes": (-1,), "mode": "reflect"})],
    "QUANTIZE": [([(2, 4), (4,), (4,)], {"axis": 1}), ([(3,), ()], {})],
    "QUANTIZE_ROWS": [([(3, 8)],)],
    "RANGE": [([], {"start": 1.0, "limit": 9.0, "delta": 2.0})],
    "RESAMPLE": [([(2, 5, 6), (7, 1), None, (3, 1)], {"axes": (1, 2)}, {1: (0, 5), 3: (0, 6)})],
    "RESHAPE": [([(2, 6)], {"shape": (3, -1)}), ([(0, 4)], {"shape": (0, 2, 2)})],
    "RESIZE": [([(1, 2, 3, 4)], {"scales": (2.0, 1.5), "axes": (2, 3)}),
               ([(1, 4, 4)], {"sizes": (2, 7), "axes": (1, 2)})],
    "REVERSE_SEQUENCE": [([(4, 3), (3,)], {}, {1: (1, 5)})],
    "SCALED_MATMUL": [([(3, 5), (5, 4)],),
                      ([(2, 3, 4), (4, 5), (3, 1), (5,), (5,)], {"output_dtype": "f16"}),
                      ([(3, 17), (17, 9), None, ()], {}, {}, {0: "u8"}),
                      ([(3, 17), (17, 9), ()], {"output_dtype": "bf16"}, {},
                       {0: "f8e4m3", 1: "f8e5m2"})],
    "RMS_NORM": [([(3, 8), (8,)],)],
    "RNN": [([(3, 2, 4), (1, 3, 4), (1, 3, 3)], {"hidden_size": 3})],
    "ROTARY": [([(2, 3, 4, 8), (2, 4, 4), (2, 4, 4)],)],
    "SCATTER_ELEMENTS": [([(4, 3), (2, 3), (2, 3)], {"reduction": "max"}, {1: (0, 4)}),
                         ([(6,), (1,), (1,)], {}, {1: (0, 6)}),
                         ([(4, 3), (0, 3), (0, 3)], {})],
    "SCATTER_ND": [([(5, 3), (1, 1), (1, 3)], {}, {1: (0, 5)}),
                   ([(5,), (4, 1), (4,)], {"reduction": "max"}, {1: (0, 5)}),
                   ([(5, 3), (0, 1), (0, 3)], {})],
    "SLICE": [([(5, 6)], {"starts": (1, -1), "ends": (5, -7), "axes": (0, 1), "steps": (2, -2)})],
    "SOFTMAX": [([(3, 5)],), ([(2, 4, 3)], {"axis": 1}), ([(3, 1)],)],
    "SPACE_TO_DEPTH": [([(1, 2, 4, 6)], {"blocksize": 2})],
    "SPLIT": [([(2, 7)], {"axis": 1, "split": (3, 4)}), ([(6,)], {"num_outputs": 2})],
    "SQUEEZE": [([(1, 3, 1)], {"axes": (0,)})],
    "TILE": [([(2, 3)], {"repeats": (2, 3)})],
    "TOPK": [([(3, 8)], {"k": 3}), ([(5, 2)], {"k": 2, "axis": 0, "largest": False})],
    "TRANSPOSE": [([(2, 3, 4)], {"perm": (2, 0, 1)}), ([(9, 33)],)],
    "TRILU": [([(3, 4)], {"upper": False, "k": 1})],
    "UNSQUEEZE": [([(3,)], {"axes": (0, -1)})],
}
# Inputs of one operator stand for those of a family.
_REDUCTIONS = [([(3, 4, 5)], {"axes": (-1,)}), ([(3, 4, 5)], {"axes": (0, 2), "keepdims": False}),
               ([(2, 1)], {})]
# Made by passes from others, with declarations that no model states.
INTERNAL = frozenset({"FUSED_ROW"})


def examples(op: str) -> Iterator[Example]:
    """Yield the examples of an operator."""
    definition = OPS[op]
    if definition.expr is not None:
        yield from _elementwise(op)
        return
    rows = _TABLE.get(op) or (_REDUCTIONS if op.startswith("REDUCE_") else ())
    for shapes, *rest in rows:
        attrs, spans, dtypes = (*rest, {}, {}, {})[:3]
        yield Example(op, tuple(shapes), attrs, spans, dtypes)


def _elementwise(op: str) -> Iterator[Example]:
    """Broadcast operands, single elements, scalars, nothing at all."""
    definition = OPS[op]
    attrs = {s.name: _FILL[s.name] for s in definition.attrs if s.default is REQUIRED}
    count = 3 if definition.variadic else len(definition.inputs)
    for shapes in ([(3, 1, 5), (4, 1), (5,)], [(1,), (1,), (1,)], [(), (2, 3), ()],
                   [(0, 3), (3,), (0, 1)]):
        given = [*shapes, *[shapes[0]] * count][:count]
        yield Example(op, tuple(given), attrs)


def main_dtypes(example: Example) -> tuple[str, ...]:
    """Return the dtypes that the main inputs may have."""
    op = OPS[example.op]
    own = [slot for slot, shape in enumerate(example.shapes) if shape is not None
           and slot not in example.dtypes
           and op.input_name(slot).partition("[")[0] not in op.other]
    return op.dtypes if own else ("f32",)


def run_example(example: Example, dtype: str, backend: str) -> None:
    """Run an example and compare it with NumPy.

    Raises:
        AssertionError: an output differs by more than its dtype's tolerance.
    """
    graph = example.graph(dtype)
    feeds = example.feeds(graph)
    expected = run_graph(graph, feeds)
    found = Executable(optimize(graph).graph, backend=backend).run(feeds)
    for name, wanted in expected.items():
        kind = graph.types[name].dtype
        assert found[name].dtype == wanted.dtype and found[name].shape == wanted.shape
        if kind in TOLERANCE:
            np.testing.assert_allclose(
                found[name].astype("f8"), wanted.astype("f8"), rtol=TOLERANCE[kind],
                atol=TOLERANCE[kind], err_msg=f"{example.label} {dtype}")
        else:
            np.testing.assert_array_equal(found[name], wanted, f"{example.label} {dtype}")
