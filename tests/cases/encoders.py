"""Transformer encoders in ONNX, spelled as exporters write them, with random weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HIDDEN, HEADS, INNER = 32, 4, 64
SIZE = HIDDEN // HEADS


class Writer:
    """Collects nodes and weights of one model."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray] = {}
        self.rng = np.random.default_rng(11)

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> str:
        names = [f"{op}_{len(self.nodes)}" + (f":{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=names[0], **attrs))
        return names[0]

    def constant(self, values: Any, dtype: str = "f4") -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(values, dtype)
        return name

    def ints(self, *values: int) -> str:
        return self.constant(values, "i8")

    def random(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape) / math.sqrt(shape[0]))

    def mean(self, x: str) -> str:
        if self.opset < 18:
            return self("ReduceMean", x, axes=[-1], keepdims=1)
        return self("ReduceMean", x, self.ints(-1), keepdims=1)

    def row(self) -> str:
        return self.constant(self.rng.uniform(0.5, 1.5, HIDDEN))

    def model(self, output: str) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "seq", HIDDEN])
        mask = helper.make_tensor_value_info("mask", TensorProto.INT64, ["batch", "seq"])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        self.nodes.append(helper.make_node("Identity", [output], ["y"], name="last"))
        graph = helper.make_graph(
            self.nodes, "encoder", [x, mask], [y],
            [numpy_helper.from_array(a, n) for n, a in self.weights.items()])
        return helper.make_model(graph, ir_version=8,
                                 opset_imports=[helper.make_opsetid("", self.opset)])


def symbolic_shape(w: Writer, like: str, *rest: int) -> str:
    """Return [batch, seq, *rest] as TorchScript exports compute it."""
    shape = w("Shape", like)
    picked = [w("Unsqueeze", w("Gather", shape, w.constant(i, "i8")), w.ints(0)) for i in (0, 1)]
    return w("Concat", *picked, *[w.ints(e) for e in rest], axis=0)


def torch_norm(w: Writer, x: str) -> str:
    centred = w("Sub", x, w.mean(x))
    variance = w.mean(w("Pow", centred, w.constant(2.0)))
    root = w("Sqrt", w("Add", variance, w.constant(1e-5)))
    return w("Add", w("Mul", w("Div", centred, root), w.row()), w.row())


def fused_norm(w: Writer, x: str) -> str:
    return w("LayerNormalization", x, w.row(), w.row(), axis=-1, epsilon=1e-5)


def tensorflow_norm(w: Writer, x: str) -> str:
    """x * (scale / root) + (bias - mean * (scale / root)), as tf.nn.batch_normalization."""
    mean = w.mean(x)
    difference = w("Sub", x, mean)
    variance = w.mean(w("Mul", difference, difference))
    inverse = w("Reciprocal", w("Sqrt", w("Add", variance, w.constant(1e-5))))
    factor = w("Mul", inverse, w.row())
    shift = w("Sub", w.row(), w("Mul", mean, factor))
    return w("Add", w("Mul", x, factor), shift)


def erf_gelu(w: Writer, x: str) -> str:
    one = w("Add", w("Erf", w("Div", x, w.constant(math.sqrt(2)))), w.constant(1.0))
    return w("Mul", w("Mul", x, one), w.constant(0.5))


def tanh_gelu(w: Writer, x: str) -> str:
    cube = w("Mul", w.constant(0.044715), w("Pow", x, w.constant(3.0)))
    inner = w("Mul", w.constant(math.sqrt(2 / math.pi)), w("Add", x, cube))
    half = w("Mul", w.constant(0.5), w("Add", w.constant(1.0), w("Tanh", inner)))
    return w("Mul", x, half)


def gelu(w: Writer, x: str) -> str:
    return w("Gelu", x)


def linear(w: Writer, x: str, out: int, inner: int = HIDDEN) -> str:
    """MatMul and Add with the bias first, as TorchScript writes it."""
    return w("Add", w.random(out), w("MatMul", x, w.random(inner, out)))


def flat_linear(w: Writer, x: str, out: int, inner: int = HIDDEN) -> str:
    """A product of [batch * seq, inner], as TensorFlow's Dense on flat tokens."""
    return w("Add", w("MatMul", x, w.random(inner, out)), w.random(out))


def between_linear(w: Writer, x: str, out: int, inner: int = HIDDEN) -> str:
    """Reshapes around the product and before the bias, as tf.tensordot."""
    flat = w("Reshape", x, w.ints(-1, inner))
    product = w("Reshape", w("MatMul", flat, w.random(inner, out)), symbolic_shape(w, x, out))
    return w("Add", product, w.random(out))


def gemm_linear(w: Writer, x: str, out: int, inner: int = HIDDEN) -> str:
    """Gemm on flat tokens with the weights transposed."""
    weights = w.constant(w.rng.standard_normal((out, inner)) / math.sqrt(inner))
    flat = w("Gemm", w("Reshape", x, w.ints(-1, inner)), weights, w.random(out), transB=1)
    return w("Reshape", flat, symbolic_shape(w, x, out))


def additive_mask(w: Writer) -> str:
    """(1 - mask) * -10000, as BERT's first code."""
    wide = w("Cast", w("Unsqueeze", "mask", w.ints(1, 2)), to=TensorProto.FLOAT)
    return w("Mul", w("Sub", w.constant(1.0), wide), w.constant(-10000.0))


def where_mask(w: Writer) -> str:
    """Where(mask, 0, -inf), as torch's scaled_dot_product_attention."""
    flags = w("Cast", w("Unsqueeze", "mask", w.ints(1, 2)), to=TensorProto.BOOL)
    return w("Where", flags, w.constant(0.0), w.constant(-np.inf))


def attention(w: Writer, q: str, k: str, v: str, mask: str, style: str) -> str:
    """softmax(q k^T / sqrt(d) + mask) v; the operands are [batch, seq, heads, size]."""
    q = w("Transpose", q, perm=[0, 2, 1, 3])
    v = w("Transpose", v, perm=[0, 2, 1, 3])
    if style == "torch":
        k = w("Transpose", k, perm=[0, 2, 3, 1])
        scores = w("Div", w("MatMul", q, k), w.constant(math.sqrt(SIZE)))
    elif style == "sdpa":
        k = w("Transpose", k, perm=[0, 2, 3, 1])
        root = w.constant(math.sqrt(1 / math.sqrt(SIZE)))
        scores = w("MatMul", w("Mul", q, root), w("Mul", k, root))
    elif style == "paddle":
        k = w("Transpose", w("Transpose", k, perm=[0, 2, 1, 3]), perm=[0, 1, 3, 2])
        scores = w("MatMul", w("Mul", q, w.constant([1 / math.sqrt(SIZE)])), k)
    else:
        k = w("Transpose", k, perm=[0, 2, 3, 1])
        scores = w("Mul", w("MatMul", q, k), w.constant(1 / math.sqrt(SIZE)))
    weights = w("Softmax", w("Add", scores, mask), axis=-1)
    if style == "sdpa":
        weights = w("Where", w("IsNaN", weights), w.constant(0.0), weights)
    return w("Transpose", w("MatMul", weights, v), perm=[0, 2, 1, 3])


Part = Callable[..., str]


def encoder(layers: int, *, norm: Part, act: Part, dense: Part, mask: Part, style: str,
            flat: bool = False, pre_norm: bool = False, opset: int = 17) -> onnx.ModelProto:
    """Return an encoder of these parts.

    Args:
        flat: tokens are [batch * seq, hidden] between the layers.
        pre_norm: norms stand before attention and the inner layers, not behind the sums.
    """
    w = Writer(opset)
    bias = mask(w)
    x = w("Reshape", "x", w.ints(-1, HIDDEN)) if flat else "x"

    def heads(value: str) -> str:
        return w("Reshape", value, symbolic_shape(w, "x", HEADS, SIZE))

    for _ in range(layers):
        source = norm(w, x) if pre_norm else x
        q, k, v = (heads(dense(w, source, HIDDEN)) for _ in range(3))
        seen = attention(w, q, k, v, bias, style)
        merged = w.ints(-1, HIDDEN) if flat else symbolic_shape(w, "x", HIDDEN)
        x = w("Add", dense(w, w("Reshape", seen, merged), HIDDEN), x)
        x = x if pre_norm else norm(w, x)
        inner = act(w, dense(w, norm(w, x) if pre_norm else x, INNER))
        x = w("Add", dense(w, inner, HIDDEN, INNER), x)
        x = x if pre_norm else norm(w, x)
    return w.model(w("Reshape", x, symbolic_shape(w, "x", HIDDEN)) if flat else x)


STYLES: dict[str, dict[str, Any]] = {
    "torchscript": {"norm": torch_norm, "act": erf_gelu, "dense": linear, "mask": additive_mask,
                    "style": "torch", "opset": 13},
    "torchscript, opset 17": {"norm": fused_norm, "act": erf_gelu, "dense": linear,
                              "mask": where_mask, "style": "sdpa"},
    "torch dynamo": {"norm": fused_norm, "act": gelu, "dense": gemm_linear, "mask": where_mask,
                     "style": "sdpa", "opset": 20},
    "tf2onnx": {"norm": tensorflow_norm, "act": tanh_gelu, "dense": flat_linear,
                "mask": additive_mask, "style": "tf", "flat": True, "opset": 15},
    "tf2onnx, tensordot": {"norm": tensorflow_norm, "act": erf_gelu, "dense": between_linear,
                           "mask": additive_mask, "style": "tf", "opset": 15},
    "paddle": {"norm": torch_norm, "act": erf_gelu, "dense": linear, "mask": additive_mask,
               "style": "paddle", "opset": 11 + 2},
    "norm first": {"norm": torch_norm, "act": erf_gelu, "dense": linear, "mask": additive_mask,
                   "style": "torch", "pre_norm": True, "opset": 13},
}


def feeds(lengths: Sequence[int]) -> dict[str, np.ndarray]:
    """Return inputs with these numbers of tokens that are no padding."""
    x = np.random.default_rng(2).standard_normal((len(lengths), max(lengths), HIDDEN))
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    return {"x": x.astype("f4"), "mask": mask.astype("i8")}
