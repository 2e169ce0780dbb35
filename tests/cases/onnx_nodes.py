"""The node cases of the onnx package as ge2 graphs: a mapping of names and attributes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ge2.compiler import opdefs
from ge2.compiler.ir import Graph, Node, TensorType
from ge2.contract import DTYPES, numpy_dtype

_NAMES = {numpy_dtype(name): name for name in DTYPES}


@dataclass(frozen=True)
class Case:
    """One case: a graph of mostly one node, its inputs and what ONNX expects."""

    name: str
    op: str
    graph: Graph
    feeds: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    rtol: float
    atol: float


class Unmapped(Exception):
    """The case uses something that ge2 has no operator or dtype for; the message says what."""


class GraphBuilder:
    """Appends typed nodes to a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def op(self, name: str, *inputs: str, **attrs: Any) -> str:
        return self.multi(name, 1, *inputs, **attrs)[0]

    def multi(self, name: str, n_outputs: int, *inputs: str, **attrs: Any) -> tuple[str, ...]:
        given = {key: value for key, value in attrs.items() if value is not None}
        types = opdefs.infer(name, [self.graph.types[v] if v else None for v in inputs], given)
        label = f"n{len(self.graph.nodes)}"
        outputs = tuple(f"{label}.{i}" for i in range(min(n_outputs, len(types))))
        self.graph.types.update(zip(outputs, types, strict=False))
        self.graph.nodes.append(Node(name, label, tuple(inputs), outputs, given))
        return outputs

    def type(self, value: str) -> TensorType:
        return self.graph.types[value]


class Call:
    """One ONNX node while it is translated."""

    def __init__(self, node: Any, arrays: dict[str, np.ndarray]) -> None:
        from onnx import helper

        self.graph = Graph(name=node.op_type)
        self.builder = GraphBuilder(self.graph)
        self.node = node
        self.attrs = {a.name: _plain(helper.get_attribute_value(a)) for a in node.attribute}
        self.arrays = arrays
        self.names = list(node.input)

    def value(self, index: int) -> np.ndarray | None:
        """Return the data of an input that ge2 takes as an attribute."""
        if index >= len(self.names) or not self.names[index]:
            return None
        return self.arrays[self.names[index]]

    def list(self, index: int) -> list[Any] | None:
        """Return an input as a list, None when absent."""
        found = self.value(index)
        return None if found is None else found.reshape(-1).tolist()

    def scalar(self, index: int, default: Any = None) -> Any:
        """Return a one-element input as a number."""
        found = self.value(index)
        return default if found is None else found.reshape(-1)[0].item()

    def input(self, index: int) -> str:
        """Return an input as a graph input, "" when absent."""
        array = self.value(index)
        if array is None:
            return ""
        name = self.names[index]
        if name not in self.graph.types:
            if array.dtype not in _NAMES:
                raise Unmapped(f"dtype {array.dtype}")
            self.graph.types[name] = TensorType(_NAMES[array.dtype], array.shape)
            self.graph.inputs.append(name)
        return name

    def inputs(self, *indices: int) -> list[str]:
        """Return the named inputs (all when none are named) without trailing absent ones."""
        given = [self.input(i) for i in indices or range(len(self.names))]
        while given and not given[-1]:
            given.pop()
        return given

    def take(self, *names: str, **renamed: str) -> dict[str, Any]:
        """Return attributes under their own names, or renamed, leaving out those not given."""
        pairs = {**{n: n for n in names}, **renamed}
        return {ours: self.attrs[theirs] for theirs, ours in pairs.items() if theirs in self.attrs}

    def only(self, *names: str) -> None:
        """Refuse attributes that the translation does not know."""
        for name in self.attrs:
            if name not in names:
                raise Unmapped(f"attribute {name}")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def _dtype(code: int) -> str:
    from onnx import helper

    found = _NAMES.get(helper.tensor_dtype_to_np_dtype(code))
    if found is None:
        raise Unmapped(f"dtype {code}")
    return found


Translate = Callable[[Call], "list[str] | tuple[str, ...] | str"]
TRANSLATE: dict[str, Translate] = {}


def _direct(name: str, *attrs: str, op: str = "") -> None:
    """Map an operator whose inputs and attributes are the same."""

    def translate(call: Call) -> str:
        call.attrs.pop("kernel_shape", None)  # a convolution's weights say the same
        call.only(*attrs)
        return call.builder.op(op or name.upper(), *call.inputs(), **call.attrs)

    TRANSLATE[name] = translate


for _name in (
        "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf",
        "Exp", "Floor", "Identity", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round",
        "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "Add",
        "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater", "Max", "Min",
        "Sum", "Mean", "Where", "IsNaN", "PRelu"):
    _direct(_name)
for _name, _op in (("BitwiseAnd", "BITWISE_AND"), ("BitwiseOr", "BITWISE_OR"),
                   ("BitwiseXor", "BITWISE_XOR"), ("BitwiseNot", "BITWISE_NOT"),
                   ("LessOrEqual", "LESS_OR_EQUAL"), ("GreaterOrEqual", "GREATER_OR_EQUAL"),
                   ("HardSwish", "HARD_SWISH"), ("GlobalAveragePool", "GLOBAL_AVG_POOL"),
                   ("GlobalMaxPool", "GLOBAL_MAX_POOL"), ("MatMul", "MATMUL"),
                   ("MatMulInteger", "MATMUL_INTEGER")):
    _direct(_name, op=_op)
for _name, _op, *_attrs in (
        ("Elu", "ELU", "alpha"), ("Selu", "SELU", "alpha", "gamma"), ("Celu", "CELU", "alpha"),
        ("LeakyRelu", "LEAKY_RELU", "alpha"), ("ThresholdedRelu", "THRESHOLDED_RELU", "alpha"),
        ("HardSigmoid", "HARD_SIGMOID", "alpha", "beta"), ("Shrink", "SHRINK", "lambd", "bias"),
        ("Gelu", "GELU", "approximate"), ("Swish", "SWISH", "alpha"),
        ("IsInf", "ISINF", "detect_negative", "detect_positive"), ("Mod", "MOD", "fmod"),
        ("BitShift", "BIT_SHIFT", "direction"), ("Transpose", "TRANSPOSE", "perm"),
        ("Concat", "CONCAT", "axis"), ("Flatten", "FLATTEN", "axis"),
        ("Gather", "GATHER", "axis"), ("GatherElements", "GATHER_ELEMENTS", "axis"),
        ("GatherND", "GATHER_ND", "batch_dims"), ("ScatterND", "SCATTER_ND", "reduction"),
        ("ScatterElements", "SCATTER_ELEMENTS", "axis", "reduction"),
        ("Scatter", "SCATTER_ELEMENTS", "axis"),
        ("ArgMax", "ARGMAX", "axis", "keepdims", "select_last_index"),
        ("ArgMin", "ARGMIN", "axis", "keepdims", "select_last_index"),
        ("Softmax", "SOFTMAX", "axis"), ("LogSoftmax", "LOG_SOFTMAX", "axis"),
        ("Hardmax", "HARDMAX", "axis"), ("LpNormalization", "LP_NORM", "axis", "p"),
        ("MeanVarianceNormalization", "MEAN_VARIANCE_NORM", "axes"),
        ("LRN", "LRN", "size", "alpha", "beta", "bias"),
        ("InstanceNormalization", "INSTANCE_NORM", "epsilon"),
        ("GroupNormalization", "GROUP_NORM", "epsilon", "num_groups"),
        ("DepthToSpace", "DEPTH_TO_SPACE", "blocksize", "mode"),
        ("SpaceToDepth", "SPACE_TO_DEPTH", "blocksize", "mode"), ("Einsum", "EINSUM", "equation"),
        ("ReverseSequence", "REVERSE_SEQUENCE", "batch_axis", "time_axis"),
        ("RotaryEmbedding", "ROTARY", "interleaved", "num_heads", "rotary_embedding_dim"),
        ("ConvTranspose", "CONV_TRANSPOSE", "strides", "pads", "dilations", "group", "auto_pad",
         "output_padding", "output_shape")):
    _direct(_name, *_attrs, op=_op)


def _maps(*names: str) -> Callable[[Translate], Translate]:
    def register(function: Translate) -> Translate:
        for name in names:
            TRANSLATE[name] = function
        return function

    return register


@_maps("Cast", "CastLike")
def _cast(call: Call) -> str:
    call.only("to", "saturate", "round_mode")
    to = _dtype(call.attrs["to"]) if "to" in call.attrs else _NAMES.get(call.value(1).dtype)
    if to is None:
        raise Unmapped("dtype")
    return call.builder.op("CAST", call.input(0), to=to)


@_maps("Clip")
def _clip(call: Call) -> str:
    return call.builder.op("CLIP", call.input(0), min=call.scalar(1), max=call.scalar(2))


@_maps("Dropout")
def _dropout(call: Call) -> str:
    if call.scalar(2) or len(call.node.output) > 1:
        raise Unmapped("training")
    return call.builder.op("IDENTITY", call.input(0))


@_maps("Gemm")
def _gemm(call: Call) -> str:
    call.only("alpha", "beta", "transA", "transB")
    attrs = call.take("alpha", "beta", transA="trans_a", transB="trans_b")
    a, b, *c = call.inputs()
    return call.builder.op("GEMM_BIAS_ACT", a, b, *(["", *c] if c else []), **attrs)


@_maps(*(f"Reduce{n}" for n in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod",
                                "Sum", "SumSquare")))
def _reduce(call: Call) -> str:
    call.only("keepdims", "noop_with_empty_axes", "axes")
    axes = call.list(1) if len(call.names) > 1 else call.attrs.get("axes")
    return call.builder.op(call.node.op_type.upper().replace("REDUCE", "REDUCE_"), call.input(0),
                           axes=axes, **call.take("keepdims", "noop_with_empty_axes"))


@_maps("LayerNormalization", "RMSNormalization")
def _layer_norm(call: Call) -> str:
    call.only("axis", "epsilon", "stash_type")
    op = "LAYER_NORM" if call.node.op_type.startswith("Layer") else "RMS_NORM"
    return call.builder.op(op, *call.inputs(), **call.take("axis", "epsilon"))


@_maps("BatchNormalization")
def _batch_norm(call: Call) -> str:
    if call.attrs.get("training_mode") or len(call.node.output) > 1:
        raise Unmapped("training")
    return call.builder.op("BATCH_NORM", *call.inputs(), **call.take("epsilon"))


@_maps("Reshape")
def _reshape(call: Call) -> str:
    return call.builder.op("RESHAPE", call.input(0), shape=call.list(1), **call.take("allowzero"))


@_maps("Squeeze", "Unsqueeze")
def _squeeze(call: Call) -> str:
    return call.builder.op(call.node.op_type.upper(), call.input(0), axes=call.list(1))


@_maps("Expand")
def _expand(call: Call) -> str:
    return call.builder.op("EXPAND", call.input(0), shape=call.list(1))


@_maps("Tile")
def _tile(call: Call) -> str:
    return call.builder.op("TILE", call.input(0), repeats=call.list(1))


@_maps("Slice")
def _slice(call: Call) -> str:
    return call.builder.op("SLICE", call.input(0), starts=call.list(1), ends=call.list(2),
                           axes=call.list(3), steps=call.list(4))


@_maps("Split")
def _split(call: Call) -> tuple[str, ...]:
    split = call.list(1) if len(call.names) > 1 else call.attrs.get("split")
    count = None if split is not None else len(call.node.output)
    return call.builder.multi("SPLIT", len(call.node.output), call.input(0), split=split,
                              num_outputs=count, **call.take("axis"))


@_maps("Pad")
def _pad(call: Call) -> str:
    return call.builder.op("PAD", call.input(0), pads=call.list(1), value=call.scalar(2, 0.0),
                           axes=call.list(3), **call.take("mode"))


@_maps("OneHot")
def _one_hot(call: Call) -> str:
    return call.builder.op("ONE_HOT", call.input(0), call.input(2), depth=int(call.scalar(1)),
                           **call.take("axis"))


@_maps("Trilu")
def _trilu(call: Call) -> str:
    return call.builder.op("TRILU", call.input(0), k=call.scalar(1, 0), **call.take("upper"))


@_maps("Range")
def _range(call: Call) -> str:
    dtype = _NAMES.get(call.value(0).dtype)
    if dtype is None:
        raise Unmapped("dtype")
    return call.builder.op("RANGE", start=call.scalar(0), limit=call.scalar(1),
                           delta=call.scalar(2), dtype=dtype)


@_maps("EyeLike")
def _eye_like(call: Call) -> str:
    dtype = _dtype(call.attrs["dtype"]) if "dtype" in call.attrs else None
    return call.builder.op("EYE_LIKE", call.input(0), dtype=dtype, **call.take("k"))


@_maps("CumSum", "CumProd")
def _cumsum(call: Call) -> str:
    return call.builder.op(call.node.op_type.upper(), call.input(0), axis=call.scalar(1),
                           **call.take("exclusive", "reverse"))


@_maps("TopK")
def _topk(call: Call) -> tuple[str, ...]:
    return call.builder.multi("TOPK", 2, call.input(0), k=call.scalar(1),
                              **call.take("axis", "largest", "sorted"))


@_maps("Conv")
def _conv(call: Call) -> str:
    call.only("strides", "pads", "dilations", "group", "auto_pad", "kernel_shape")
    n = call.value(0).ndim - 2
    return call.builder.op(f"CONV{n}D", *call.inputs(),
                           **call.take("strides", "pads", "dilations", "group", "auto_pad"))


@_maps("MaxPool", "AveragePool", "LpPool")
def _pool(call: Call) -> str:
    if len(call.node.output) > 1:
        raise Unmapped("indices of a max pool")
    op = {"MaxPool": "MAX_POOL", "AveragePool": "AVG_POOL", "LpPool": "LP_POOL"}
    attrs = {name: value for name, value in call.attrs.items() if name != "storage_order"}
    return call.builder.op(op[call.node.op_type], *call.inputs(), **attrs)


@_maps("Resize")
def _resize(call: Call) -> str:
    scales, sizes = call.list(2) or None, call.list(3) or None
    return call.builder.op("RESIZE", call.input(0), scales=scales, sizes=sizes,
                           roi=call.list(1) or None, **call.attrs)


@_maps("QuantizeLinear")
def _quantize(call: Call) -> str:
    call.only("axis", "block_size", "output_dtype", "saturate", "precision")
    attrs = call.take("axis", "block_size")
    if call.attrs.get("output_dtype"):
        attrs["output_dtype"] = _dtype(call.attrs["output_dtype"])
    return call.builder.op("QUANTIZE", *call.inputs(), **attrs)


@_maps("DequantizeLinear")
def _dequantize(call: Call) -> str:
    call.only("axis", "block_size", "output_dtype")
    return call.builder.op("DEQUANTIZE", *call.inputs(), **call.take("axis", "block_size"))


@_maps("DynamicQuantizeLinear")
def _dynamic(call: Call) -> tuple[str, ...]:
    return call.builder.multi("DYNAMIC_QUANTIZE", 3, *call.inputs())


@_maps("LSTM", "GRU", "RNN")
def _recurrent(call: Call) -> list[str]:
    call.only("hidden_size", "direction", "layout", "clip", "input_forget", "linear_before_reset")
    lengths = call.value(4)
    steps = call.value(0).shape[1 if call.attrs.get("layout") else 0]
    if lengths is not None and (lengths != steps).any():
        raise Unmapped("sequence_lens")
    order = [0, 1, 2, 3, 5, 6, 7][: len(call.names) - (len(call.names) > 4)]
    names = list(call.builder.multi(call.node.op_type, 3, *call.inputs(*order), **call.attrs))
    return [name if output else "" for name, output in zip(names, call.node.output, strict=False)]


@_maps("Attention")
def _attention(call: Call) -> list[str]:
    call.only("scale", "is_causal", "q_num_heads", "kv_num_heads", "softcap", "softmax_precision",
              "left_window_size", "right_window_size")
    b = call.builder
    if len(call.node.output) > 3:
        raise Unmapped("scores as an output")
    q, k, v = call.inputs(0, 1, 2)
    mask, past_k, past_v, length = (call.input(i) for i in (3, 4, 5, 6))
    attrs = call.take("scale", "is_causal", "q_num_heads", "kv_num_heads", "softcap",
                      "left_window_size", "right_window_size")
    outputs = []
    if past_k:
        heads = b.type(past_k).shape[1]
        if b.type(k).rank == 3:
            k, v = (b.op("TRANSPOSE", b.op("RESHAPE", x, shape=(0, 0, heads, -1)),
                         perm=(0, 2, 1, 3)) for x in (k, v))
            q = b.op("TRANSPOSE", b.op("RESHAPE", q, shape=(0, 0, attrs["q_num_heads"], -1)),
                     perm=(0, 2, 1, 3))
        attrs["query_offset"] = b.type(past_k).shape[2]
        k, v = b.op("CONCAT", past_k, k, axis=2), b.op("CONCAT", past_v, v, axis=2)
        outputs = [k, v]
    if mask:
        keys = b.type(k).shape[1 if b.type(k).rank == 3 else 2]
        missing = keys - b.type(mask).shape[-1]
        if missing:
            fill = 0.0 if b.type(mask).dtype == "bool" else float("-inf")
            mask = b.op("PAD", mask, pads=(0, missing), axes=(-1,), value=fill)
    y = b.op("ATTENTION", q, k, v, mask, length, **attrs)
    if past_k and call.value(0).ndim == 3:
        y = b.op("RESHAPE", b.op("TRANSPOSE", y, perm=(0, 2, 1, 3)), shape=(0, 0, -1))
    return [y, *outputs]


def _array(value: Any) -> np.ndarray:
    from onnx import TensorProto, numpy_helper

    if isinstance(value, TensorProto):
        if value.data_type in (TensorProto.UNDEFINED, TensorProto.STRING):
            raise Unmapped("not a tensor of numbers")
        value = numpy_helper.to_array(value)
    if not isinstance(value, (np.ndarray, np.generic)):
        raise Unmapped("not a tensor")
    return np.asarray(value)


def _translate(case: Any) -> Case:
    node = case.model.graph.node[0]
    if len(case.model.graph.node) != 1 or node.op_type not in TRANSLATE:
        raise Unmapped(f"operator {node.op_type}")
    inputs, outputs = case.data_sets[0]
    names = [i.name for i in case.model.graph.input]
    call = Call(node, dict(zip(names, map(_array, inputs), strict=True)))
    expected = dict(zip([o.name for o in case.model.graph.output], map(_array, outputs),
                        strict=True))
    made = TRANSLATE[node.op_type](call)
    results = [made] if isinstance(made, str) else list(made)
    pairs = [(result, name) for result, name in zip(results, node.output, strict=False)
             if result and name]
    call.graph.outputs = list(dict.fromkeys(result for result, _ in pairs))
    feeds = {name: call.arrays[name] for name in call.graph.inputs}
    return Case(case.name, node.op_type, call.graph, feeds,
                {result: expected[name] for result, name in pairs}, case.rtol, case.atol)


@lru_cache(maxsize=1)
def all_cases() -> tuple[tuple[Case, ...], dict[str, str]]:
    """Return the cases that ge2 can express, and why each other one is left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases: list[Case] = []
        skipped: dict[str, str] = {}
        for case in _unique(collect_testcases(None)):
            try:
                cases.append(_translate(case))
            except Unmapped as reason:
                skipped[case.name] = str(reason)
    return tuple(cases), skipped


def _unique(cases: list[Any]) -> Iterator[Any]:
    seen: set[str] = set()
    for case in cases:
        if case.name not in seen:
            seen.add(case.name)
            yield case


# f16 and bf16 round to 11 and 8 bits; ge2 rounds once where the ONNX references round every step.
RTOL = {"bfloat16": 2e-2, "float16": 2e-3}


def check(case: Case, got: dict[str, np.ndarray]) -> None:
    """Compare outputs with what ONNX expects: dtype, shape, values."""
    for name, wanted in case.expected.items():
        assert got[name].dtype == wanted.dtype, case.name
        assert got[name].shape == wanted.shape, case.name
        wide = "f8" if wanted.dtype.kind not in "biu" else wanted.dtype
        rtol = max(case.rtol, RTOL.get(wanted.dtype.name, 1e-3))
        np.testing.assert_allclose(got[name].astype(wide), wanted.astype(wide), rtol=rtol,
                                   atol=max(case.atol, 1e-6), err_msg=case.name)
