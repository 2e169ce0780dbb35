"""Random shapes, axes and broadcasting against NumPy: extents 0 and 1, negative axes, steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ge2.compiler import opdefs
from ge2.compiler.ir import Graph, TensorType, evaluate, symbol
from ge2.compiler.ir.nodes import Node
from ge2.compiler.passes.pipeline import optimize
from ge2.contract import numpy_dtype
from ge2.runtime.cpu import run_graph

from ...cases import drawn

SMALL = settings(max_examples=40, deadline=None)
RNG = np.random.default_rng(3)


def array(shape, dtype="f32"):
    if dtype == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if numpy_dtype(dtype).kind in "iu":
        return RNG.integers(0 if dtype == "u8" else -9, 10, shape).astype(numpy_dtype(dtype))
    return RNG.standard_normal(shape).astype(numpy_dtype(dtype))


def run(op, arrays, **attrs):
    """Return the first output, computed three ways that must agree: the reference, the inferred
    type, and a one-node graph after all passes."""
    results = opdefs.reference(op, arrays, attrs)
    types = [TensorType(opdefs.dtype_of(a), a.shape) for a in arrays]
    inferred = opdefs.infer(op, types, attrs)
    for result, kind in zip(results, inferred, strict=True):
        assert (opdefs.dtype_of(result), result.shape) == (kind.dtype, kind.shape)
    graph = Graph()
    for i, kind in enumerate(types):
        graph.inputs.append(f"x{i}")
        graph.types[f"x{i}"] = kind
    graph.outputs = [f"y{i}" for i in range(len(results))]
    graph.types.update(zip(graph.outputs, inferred, strict=True))
    graph.nodes = [Node(op, "node", tuple(graph.inputs), tuple(graph.outputs), attrs)]
    again = run_graph(optimize(graph).graph, dict(zip(graph.inputs, arrays, strict=True)))
    for i, result in enumerate(results):
        np.testing.assert_allclose(again[f"y{i}"].astype(result.dtype), result, rtol=2e-3,
                                   atol=1e-5)
    return results[0]


def run_drawn(example, dtype="f32"):
    """Return the inputs of a drawn node and its output, computed three ways."""
    graph = example.graph(dtype)
    arrays = list(example.feeds(graph).values())
    return arrays, run(example.op, arrays, **example.attrs)


BINARY = {"ADD": np.add, "SUB": np.subtract, "MUL": np.multiply, "MAX": np.maximum,
          "LESS": np.less, "ATAN2": np.arctan2}


@SMALL
@given(drawn.broadcasting(tuple(BINARY)))
def test_binary_operators_broadcast(example):
    (a, b), found = run_drawn(example)
    np.testing.assert_allclose(found, BINARY[example.op](a, b), rtol=1e-6)


@SMALL
@given(drawn.choices())
def test_where_broadcasts(example):
    (c, x, y), found = run_drawn(example)
    np.testing.assert_array_equal(found, np.where(c, x, y))


REDUCTIONS = {"REDUCE_SUM": np.sum, "REDUCE_PROD": np.prod, "REDUCE_MAX": np.max,
              "REDUCE_MEAN": np.mean}


@SMALL
@given(drawn.reductions(tuple(REDUCTIONS)))
def test_reductions_over_any_axes(example):
    (x,), found = run_drawn(example)
    wanted = REDUCTIONS[example.op](x.astype("f8"), axis=tuple(example.attrs["axes"]),
                                    keepdims=example.attrs["keepdims"])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@SMALL
@given(drawn.slices())
def test_slices_are_numpy_slices(example):
    (x,), found = run_drawn(example)
    np.testing.assert_array_equal(found, x[drawn.slice_index(example)])


MOVEMENT = {
    "TRANSPOSE": lambda xs, a: xs[0].transpose(a["perm"]),
    "FLIP": lambda xs, a: np.flip(xs[0], a["axes"]),
    "CONCAT": lambda xs, a: np.concatenate(xs, a["axis"]),
    "TILE": lambda xs, a: np.tile(xs[0], a["repeats"]),
    "EXPAND": lambda xs, a: np.broadcast_to(xs[0], (2, *xs[0].shape)),
    "UNSQUEEZE": lambda xs, a: np.expand_dims(xs[0], a["axes"][0]),
}


@pytest.mark.parametrize("op", MOVEMENT)
@SMALL
@given(data=st.data())
def test_movement_operators(op, data):
    example = data.draw(drawn.movement((op,)))
    dtype = data.draw(st.sampled_from(["f32", "f16", "i64", "u8", "bool"]))
    arrays, found = run_drawn(example, dtype)
    np.testing.assert_array_equal(found, MOVEMENT[op](arrays, example.attrs))


@SMALL
@given(drawn.pads(("constant", "reflect", "edge", "wrap")))
def test_pads_are_numpy_pads(example):
    (x,), found = run_drawn(example)
    both, mode = np.reshape(example.attrs["pads"], (2, -1)).T, example.attrs["mode"]
    fill = {"constant_values": 1.5} if mode == "constant" else {}
    np.testing.assert_array_equal(found, np.pad(x, both, mode=mode, **fill))


@SMALL
@given(drawn.gathers())
def test_gathers(example):
    (x, places), found = run_drawn(example)
    np.testing.assert_array_equal(found, np.take(x, places, axis=example.attrs["axis"]))


@SMALL
@given(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5), st.data())
def test_gathers_and_scatters_of_elements(shape, data):
    rank = len(shape)
    axis = data.draw(st.integers(-rank, rank - 1))
    n = shape[axis]
    x = array(shape)
    along = RNG.integers(-n, n, shape)
    np.testing.assert_array_equal(run("GATHER_ELEMENTS", [x, along], axis=axis),
                                  np.take_along_axis(x, along % n, axis))
    updates = array(shape)
    for reduction in ("none", "add", "max", "mul"):
        wanted = x.copy()
        for at in np.ndindex(*shape):
            target = list(at)
            target[axis] = along[at]
            old, new = wanted[tuple(target)], updates[at]
            wanted[tuple(target)] = {"none": new, "add": old + new, "max": max(old, new),
                                     "mul": old * new}[reduction]
        got = run("SCATTER_ELEMENTS", [x, along, updates], axis=axis, reduction=reduction)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@SMALL
@given(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6), st.data(), st.booleans())
def test_order_operators(shape, data, largest):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = RNG.integers(0, 4, shape).astype("f4")  # with ties
    x[RNG.random(shape) < 0.1] = np.nan
    k = data.draw(st.integers(0, shape[axis]))
    got = run("TOPK", [x], k=k, axis=axis, largest=largest)
    ordered = np.sort(x, axis=axis)
    ordered = np.flip(ordered, axis) if largest else ordered
    np.testing.assert_array_equal(got, np.take(ordered, range(k), axis))
    np.testing.assert_array_equal(run("ARGMAX", [x], axis=axis, keepdims=False),
                                  np.argmax(x, axis))
    np.testing.assert_array_equal(run("CUMSUM", [np.nan_to_num(x)], axis=axis),
                                  np.cumsum(np.nan_to_num(x), axis))


@SMALL
@given(drawn.matmuls())
def test_matmul_broadcasts_batches(example):
    (a, b), found = run_drawn(example)
    np.testing.assert_allclose(found, a.astype("f8") @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("equation", [
    "ij,jk->ik", "bij,bjk->bik", "bij,jk->bik", "i,i->", "i,j->ij", "ij->ji", "ii->i", "ii->",
    "...ij,...jk->...ik", "bhqd,bhkd->bhqk", "ab,bc,cd->ad", "aij,ij->a", "ij,ij->ij", "abc->b"])
def test_einsum_equations(equation):
    sizes = dict(zip("abcdhijkq", (2, 3, 4, 5, 2, 3, 3, 4, 5), strict=True))
    terms = equation.split("->")[0].split(",")
    arrays = [array((*((2, 3) if "..." in term else ()),
                     *(sizes[c] for c in term.replace("...", "")))) for term in terms]
    np.testing.assert_allclose(run("EINSUM", arrays, equation=equation),
                               np.einsum(equation, *(a.astype("f8") for a in arrays)),
                               rtol=1e-4, atol=1e-5)


B = symbol("B")


@pytest.mark.parametrize(("op", "shapes", "attrs"), [
    ("SPLIT", [(B, 6)], {"axis": 1, "num_outputs": 3}),
    ("SPLIT", [(B * 2, 6)], {"axis": 0, "split": [B, B]}),
    ("PAD", [(B, 6)], {"pads": [1, 0, 2, 0]}),
    ("TILE", [(B, 6)], {"repeats": [2, 1]}),
    ("GROUP_NORM", [(B, 4, B), (4,), (4,)], {"num_groups": 2}),
    ("ATTENTION", [(B, 4, B, 8), (B, 2, B, 8), (B, 2, B, 6)], {"is_causal": True}),
    ("ATTENTION", [(B, B, 32), (B, 7, 16), (B, 7, 16)], {"q_num_heads": 4, "kv_num_heads": 2}),
    ("ROTARY", [(B, B, 16), (9, 4), (9, 4), (B, B)], {"num_heads": 2}),
    ("EINSUM", [(B, 4, 5), (B, 5, 6)], {"equation": "bij,bjk->bik"}),
    ("DEPTH_TO_SPACE", [(B, 8, B, 3)], {"blocksize": 2}),
    ("GLOBAL_AVG_POOL", [(B, 8, B, 3)], {}),
    ("CONV1D", [(B, 4, B * 4), (6, 2, 3)], {"group": 2, "strides": [2], "pads": [1, 1]}),
    ("CONV_TRANSPOSE", [(B, 4, B, 5), (4, 3, 3, 3)], {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("LSTM", [(5, B, 3), (1, 16, 3), (1, 16, 4)], {"hidden_size": 4}),
    ("ONE_HOT", [(B,), (2,)], {"depth": 5}),
    ("BATCH_NORM", [(B, 3, B), (3,), (3,), (3,), (3,)], {}),
    ("FLATTEN", [(B, 3, B)], {"axis": 2}),
    ("RESIZE", [(B, 3, B, B)], {"scales": [1, 1, 2, 2]}),
])
@pytest.mark.parametrize("size", [1, 4])
def test_symbolic_graphs_optimize_and_run_at_any_size(op, shapes, attrs, size):
    """Inference and composition on symbols give what the concrete shapes give."""
    dtypes = {"ROTARY": ["f32", "f32", "f32", "i64"], "ONE_HOT": ["i64", "f32"]}
    kinds = [TensorType(d, s) for d, s in zip(dtypes.get(op, ["f32"] * 9), shapes, strict=False)]
    outs = opdefs.infer(op, kinds, attrs)
    arrays = []
    for kind in kinds:
        shape = kind.concrete({"B": size}).shape
        values = RNG.integers(0, 4, shape) if kind.dtype == "i64" else np.abs(array(shape))
        arrays.append(values.astype(numpy_dtype(kind.dtype)))
    names = [f"x{i}" for i in range(len(kinds))]
    made = [f"y{i}" for i in range(len(outs))]
    graph = Graph(inputs=names, outputs=made, types={
        **dict(zip(names, kinds, strict=True)), **dict(zip(made, outs, strict=True))})
    graph.nodes = [Node(op, "node", tuple(names), tuple(made), attrs)]
    got = run_graph(optimize(graph).graph, dict(zip(names, arrays, strict=True)))
    concrete = {k: tuple(evaluate(e, {"B": size}) for e in v) if isinstance(v, list) and any(
        not isinstance(e, (int, float)) for e in v) else v for k, v in attrs.items()}
    for name, wanted in zip(made, opdefs.reference(op, arrays, concrete), strict=True):
        assert got[name].shape == wanted.shape
        np.testing.assert_allclose(got[name], wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["f32", "i32", "u8"])
def test_top_k_of_long_rows_is_selected_in_rounds(largest, dtype, monkeypatch):
    from ge2.compiler.opdefs import topk

    monkeypatch.setattr(topk, "MAX_PAIRS", 0)
    x = RNG.integers(0, 3, (4, 9)).astype(numpy_dtype(dtype))
    if dtype == "f32":
        x[0, 2:7] = np.nan
        x[1] = [-np.inf, np.inf, np.nan, -np.inf, 0, 0, np.nan, np.inf, 1]
    run("TOPK", [x], k=9, axis=1, largest=largest)
    run("TOPK", [x], k=2, axis=0, largest=largest)


@pytest.mark.parametrize(("op", "shapes", "attrs"), [
    ("SOFTMAX", [(2, 0)], {}), ("LOG_SOFTMAX", [(0, 2)], {}), ("LAYER_NORM", [(2, 0), (0,)], {}),
    ("RMS_NORM", [(0, 2), (2,)], {}), ("GROUP_NORM", [(0, 4, 3), (4,), (4,)], {"num_groups": 2}),
    ("INSTANCE_NORM", [(2, 4, 0), (4,), (4,)], {}), ("LP_NORM", [(2, 0)], {}),
    ("CONV2D", [(0, 2, 5, 5), (3, 2, 3, 3)], {}), ("CONV1D", [(0, 2, 5), (3, 2, 3)], {}),
    ("CONV_TRANSPOSE", [(0, 2, 5, 5), (2, 3, 3, 3)], {"strides": [2, 2]}),
    ("MAX_POOL", [(0, 2, 5, 5)], {"kernel_shape": [2, 2]}),
    ("AVG_POOL", [(2, 0, 5, 5)], {"kernel_shape": [2, 2]}), ("GLOBAL_AVG_POOL", [(0, 2, 3)], {}),
    ("EINSUM", [(2, 0), (0, 3)], {"equation": "ij,jk->ik"}),
    ("RESIZE", [(0, 2, 3, 3)], {"scales": [1, 1, 2, 2], "mode": "linear"}),
    ("ATTENTION", [(0, 2, 3, 4), (0, 2, 5, 4), (0, 2, 5, 4)], {}),
    ("ATTENTION", [(2, 2, 0, 4), (2, 2, 5, 4), (2, 2, 5, 4)], {"is_causal": True}),
    ("ATTENTION", [(1, 2, 3, 4), (1, 2, 0, 4), (1, 2, 0, 4)], {"is_causal": True}),
    ("ATTENTION", [(1, 2, 3, 4), (1, 2, 0, 4), (1, 2, 0, 4)], {}),
    ("LSTM", [(3, 0, 2), (1, 8, 2), (1, 8, 2)], {"hidden_size": 2}),
    ("GEMM_BIAS_ACT", [(0, 3), (3, 4), (4,)], {"act": "gelu"}),
    ("GEMM_BIAS_ACT", [(2, 0), (0, 4), (4,)], {"act": "relu"}),
    ("GATHER_ELEMENTS", [(0, 3), (0, 2)], {"axis": 1}), ("TOPK", [(0, 3)], {"k": 2}),
    ("SCATTER_ND", [(3, 2), (0, 1), (0, 2)], {}), ("CUMSUM", [(2, 0)], {"axis": 1}),
    ("SPLIT", [(0, 4)], {"axis": 1, "num_outputs": 2}), ("TRILU", [(0, 3)], {}),
    ("REDUCE_LOGSUMEXP", [(2, 0)], {"axes": [1]}), ("REDUCE_MIN", [(0,)], {}),
    ("DEPTH_TO_SPACE", [(0, 4, 2, 2)], {"blocksize": 2}), ("FLATTEN", [(2, 0, 3)], {}),
    ("ROTARY", [(0, 2, 3, 4), (0, 3, 2), (0, 3, 2)], {}), ("DYNAMIC_QUANTIZE", [(0,)], {}),
    ("BATCH_NORM", [(0, 2), (2,), (2,), (2,), (2,)], {}), ("LRN", [(0, 3, 2)], {"size": 3}),
])
def test_empty_tensors_through_all_passes(op, shapes, attrs):
    indices = {"GATHER_ELEMENTS": 1, "SCATTER_ND": 1}
    run(op, [array(shape, "i64" if indices.get(op) == i else "f32")
             for i, shape in enumerate(shapes)], **attrs)
