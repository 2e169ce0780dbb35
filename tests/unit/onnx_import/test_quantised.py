"""Quantised products as ONNX Runtime computes them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ge2.model.node_writer import UnsupportedModel
from ge2.model.onnx_import.importer import import_model
from ge2.runtime.cpu import run_graph

onnxruntime = pytest.importorskip("onnxruntime", reason="compares with ONNX Runtime")

RNG = np.random.default_rng(11)
N, K = 24, 70


def model(nodes: list[onnx.NodeProto], x: np.ndarray, kind: int,
          weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(
            "x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", kind, [x.shape[0], N])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()])
    return helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)])


def both(proto: onnx.ModelProto, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what ge2 and ONNX Runtime compute."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    return run_graph(import_model(proto).graph, {"x": x})["y"], session.run(None, {"x": x})[0]


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("block", [16, 32, 64])
def test_matmul_nbits(zeros: bool, block: int) -> None:
    blocks = -(-K // block)
    weights = {"b": RNG.integers(0, 256, (N, blocks, block // 2)).astype(np.uint8),
               "s": RNG.uniform(0.1, 1, N * blocks).astype(np.float32)}
    if zeros:
        weights["z"] = RNG.integers(0, 256, N * ((blocks + 1) // 2)).astype(np.uint8)
    node = helper.make_node("MatMulNBits", ["x", *weights], ["y"], domain="com.microsoft",
                            K=K, N=N, bits=4, block_size=block)
    x = RNG.standard_normal((5, K)).astype(np.float32)
    found, wanted = both(model([node], x, TensorProto.FLOAT, weights), x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_matmul_nbits_of_other_widths_is_refused() -> None:
    weights = {"b": np.zeros((N, 2, 64), np.uint8), "s": np.ones(2 * N, np.float32)}
    node = helper.make_node("MatMulNBits", ["x", *weights], ["y"], domain="com.microsoft",
                            K=K, N=N, bits=8, block_size=64)
    proto = model([node], np.zeros((5, K), np.float32), TensorProto.FLOAT, weights)
    with pytest.raises(UnsupportedModel, match="4 bits"):
        import_model(proto)


@pytest.mark.parametrize("per_column", [False, True])
def test_qlinear_matmul(per_column: bool) -> None:
    """Bytes agree but for ties, which another order of factors may round to the other side."""
    count = (N,) if per_column else ()
    weights = {
        "xs": np.float32(0.02).reshape(()), "xz": np.uint8(130).reshape(()),
        "w": RNG.integers(-128, 128, (K, N)).astype(np.int8),
        "ws": RNG.uniform(0.01, 0.02, count).astype(np.float32), "wz": np.zeros(count, np.int8),
        "ys": np.float32(0.3).reshape(()), "yz": np.uint8(117).reshape(())}
    node = helper.make_node("QLinearMatMul", ["x", *weights], ["y"])
    x = RNG.integers(0, 256, (5, K)).astype(np.uint8)
    found, wanted = both(model([node], x, TensorProto.UINT8, weights), x)
    difference = np.abs(found.astype(int) - wanted)
    assert difference.max() <= 1 and (difference == 0).mean() > 0.95
