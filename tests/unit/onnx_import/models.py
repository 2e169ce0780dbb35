"""Small ONNX models, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def value(name: str, shape: Sequence[int | str] | None, dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[str], *,
          weights: dict[str, np.ndarray] | None = None, opset: int = 17) -> onnx.ModelProto:
    """Return a model whose outputs have no declared shape."""
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "test", list(inputs),
                              [value(name, None) for name in outputs], initializer=tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    """Return a node named as its first output; inputs and outputs are words."""
    names = [name if name != "-" else "" for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), name=f"n_{outputs.split()[0]}", **attrs)
