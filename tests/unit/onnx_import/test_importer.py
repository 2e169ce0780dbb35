"""Importing ONNX: shapes computed on the way, opsets, names, and what is said about bad models."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from ge2.errors import ModelError
from ge2.model.document import read_model_file
from ge2.model.loader import GraphLoader
from ge2.model.onnx_import.importer import import_model
from ge2.model.writer import write_model
from ge2.runtime.cpu import run_graph

from .models import FLOAT, INT64, model, node, value

RNG = np.random.default_rng(3)


def run(proto, feeds, **options):
    return run_graph(import_model(proto, **options).graph, feeds)


def ops(proto, **options):
    return [n.op for n in import_model(proto, **options).graph.nodes]


X = value("x", ["batch", "seq", 8])


def test_symbolic_dimensions_are_kept():
    graph = import_model(model([node("Relu", "x", "y")], [X], ["y"])).graph
    assert str(graph.types["x"]) == "f32[batch, seq, 8]" == str(graph.types["y"])


SPLIT_HEADS = [
    node("Shape", "x", "shape"),
    node("Gather", "shape i0", "b", axis=0), node("Gather", "shape i1", "s", axis=0),
    node("Unsqueeze", "b axis0", "b1"), node("Unsqueeze", "s axis0", "s1"),
    node("Concat", "b1 s1 two four", "split", axis=0),
    node("Reshape", "x split", "heads"), node("Transpose", "heads", "y", perm=[0, 2, 1, 3]),
]
SPLIT_WEIGHTS = {"i0": np.array(0), "i1": np.array(1), "axis0": np.array([0]),
                 "two": np.array([2]), "four": np.array([4])}


def test_shape_arithmetic_is_done_while_importing():
    proto = model(SPLIT_HEADS, [X], ["y"], weights=SPLIT_WEIGHTS)
    graph = import_model(proto).graph
    assert [n.op for n in graph.nodes] == ["RESHAPE", "TRANSPOSE"]
    assert str(graph.types["y"]) == "f32[batch, 2, seq, 4]"
    x = RNG.standard_normal((3, 5, 8)).astype("f4")
    np.testing.assert_array_equal(run_graph(graph, {"x": x})["y"],
                                  x.reshape(3, 5, 2, 4).transpose(0, 2, 1, 3))


def test_symbolic_shapes_survive_a_file(tmp_path):
    proto = model(SPLIT_HEADS, [X], ["y"], weights=SPLIT_WEIGHTS)
    path = write_model(import_model(proto).graph, tmp_path / "model.json")
    graph = GraphLoader(read_model_file(path), path).load()
    assert str(graph.types["y"]) == "f32[batch, 2, seq, 4]"


def test_the_expand_idiom_of_exporters():
    """Where(Equal(shape, -1), ones, shape): -1 keeps an extent."""
    nodes = [
        node("Shape", "x", "shape"), node("Slice", "shape zero one", "batch"),
        node("Concat", "batch two minus", "wanted", axis=0),
        node("Shape", "wanted", "rank"), node("ConstantOfShape", "rank", "ones",
                                              value=helper.make_tensor("v", INT64, [1], [1])),
        node("Equal", "wanted minus", "free"), node("Where", "free ones wanted", "target"),
        node("Expand", "row target", "wide"), node("ReduceMax", "x axes", "top", keepdims=1),
        node("Mul", "wide top", "y"),
    ]
    weights = {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2]),
               "minus": np.array([-1]), "axes": np.array([1, 2]),
               "row": RNG.standard_normal((1, 1, 4)).astype("f4")}
    proto = model(nodes, [X], ["y"], weights=weights, opset=18)
    x = RNG.standard_normal((3, 5, 8)).astype("f4")
    got = run(proto, {"x": x})["y"]
    np.testing.assert_allclose(got, weights["row"] * np.ones((3, 2, 4))
                               * x.max((1, 2), keepdims=True), rtol=1e-6)


def test_positions_of_a_symbolic_length():
    nodes = [node("Shape", "x", "shape"), node("Gather", "shape i1", "s", axis=0),
             node("Range", "zero s step", "places"), node("Gather", "table places", "rows"),
             node("Add", "x rows", "y")]
    table = RNG.standard_normal((50, 8)).astype("f4")
    proto = model(nodes, [X], ["y"], weights={
        "i1": np.array(1), "zero": np.array(0), "step": np.array(1), "table": table})
    for batch, seq in ((1, 1), (2, 7)):
        x = RNG.standard_normal((batch, seq, 8)).astype("f4")
        np.testing.assert_array_equal(run(proto, {"x": x})["y"], x + table[:seq])


def test_an_extent_is_a_number_at_run_time_where_it_must_be():
    nodes = [node("Shape", "x", "shape"), node("Cast", "shape", "sizes", to=FLOAT),
             node("ReduceSum", "x", "total", keepdims=0), node("Div", "total sizes", "y")]
    got = run(model(nodes, [X], ["y"], opset=13), {"x": np.ones((2, 3, 8), "f4")})["y"]
    np.testing.assert_allclose(got, 48 / np.array([2, 3, 8]), rtol=1e-6)


def test_constant_subgraphs_are_folded():
    nodes = [node("Mul", "a b", "c"), node("Exp", "c", "d"), node("Transpose", "d", "e"),
             node("MatMul", "x e", "y")]
    weights = {"a": RNG.standard_normal((4, 8)).astype("f4"), "b": np.float32(2.0)}
    proto = model(nodes, [X], ["y"], weights=weights)
    assert ops(proto) == ["MATMUL"]
    x = RNG.standard_normal((2, 3, 8)).astype("f4")
    np.testing.assert_allclose(run(proto, {"x": x})["y"], x @ np.exp(weights["a"] * 2).T,
                               rtol=1e-4, atol=1e-5)


def test_two_names_of_one_dimension_become_one():
    mask = value("mask", ["other", "length", 1])
    imported = import_model(model([node("Mul", "x mask", "y")], [X, mask], ["y"]))
    assert str(imported.graph.types["y"]) == "f32[batch, seq, 8]"
    assert sorted(imported.notes) == ["dimension length is taken to equal seq",
                                      "dimension other is taken to equal batch"]


def test_dimensions_can_be_fixed():
    graph = import_model(model([node("Relu", "x", "y")], [X], ["y"]), dims={"batch": 4}).graph
    assert str(graph.types["y"]) == "f32[4, seq, 8]"


def test_names_of_dimensions_become_identifiers():
    proto = model([node("Relu", "x", "y")], [value("x", ["batch size", "3rd", "a/b"])], ["y"])
    assert str(import_model(proto).graph.types["x"]) == "f32[batch_size, d_3rd, a_b]"


def test_names_that_become_the_same_identifier_stay_apart():
    proto = model([node("Relu", "x", "y")], [value("x", ["a b", "a_b", "?", "?"])], ["y"])
    assert str(import_model(proto).graph.types["x"]) == "f32[a_b, a_b_, x_2, x_3]"


def test_unnamed_dimensions_get_names():
    info = value("x", [None, 3])
    graph = import_model(model([node("Relu", "x", "y")], [info], ["y"])).graph
    assert str(graph.types["x"]) == "f32[x_0, 3]"


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_is_chosen_while_importing(flag):
    branches = {name: helper.make_graph([node(op, "x", "inner")], name, [], [value("inner", None)])
                for name, op in (("then_branch", "Exp"), ("else_branch", "Neg"))}
    proto = model([node("If", "flag", "y", **branches)], [X], ["y"],
                  weights={"flag": np.array(flag)})
    assert ops(proto) == ["EXP" if flag else "NEG"]


def test_an_output_may_be_an_input_a_weight_or_twice_the_same():
    nodes = [node("Relu", "x", "a"), node("Identity", "a", "b")]
    proto = model(nodes, [X], ["a", "b", "x", "w"], weights={"w": np.ones(3, "f4")})
    x = RNG.standard_normal((1, 2, 8)).astype("f4")
    got = run(proto, {"x": x})
    np.testing.assert_array_equal(got["a"], got["b"])
    np.testing.assert_array_equal(got["x.output"], x)
    np.testing.assert_array_equal(got["w"], np.ones(3))


def test_an_input_that_nothing_reads_is_left_out():
    imported = import_model(model([node("Relu", "x", "y")], [X, value("z", [2])], ["y"]))
    assert imported.graph.inputs == ["x"]
    assert imported.notes == ("input 'z' is read by no node and left out",)


@pytest.mark.parametrize(("opset", "nodes", "weights"), [
    (9, [node("Clip", "x", "y", min=-0.5, max=0.5)], {}),
    (11, [node("Clip", "x low high", "y")], {"low": np.float32(-0.5), "high": np.float32(0.5)}),
    (13, [node("Clip", "x low", "c"), node("Min", "c high", "y")],
     {"low": np.float32(-0.5), "high": np.float32(0.5)}),
])
def test_clip_of_every_opset(opset, nodes, weights):
    x = RNG.standard_normal((2, 3, 8)).astype("f4")
    got = run(model(nodes, [X], ["y"], weights=weights, opset=opset), {"x": x})["y"]
    np.testing.assert_array_equal(got, x.clip(-0.5, 0.5))


@pytest.mark.parametrize(("opset", "axes"), [(7, (1, 2)), (12, (1, 2)), (13, (2,))])
def test_softmax_flattened_up_to_opset_12(opset, axes):
    x = RNG.standard_normal((2, 3, 8)).astype("f4")
    got = run(model([node("Softmax", "x", "y")], [X], ["y"], opset=opset), {"x": x})["y"]
    e = np.exp(x.astype("f8"))
    np.testing.assert_allclose(got, e / e.sum(axes, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("opset", [7, 9, 11, 13])
def test_old_forms_of_attributes_that_became_inputs(opset):
    if opset < 13:
        nodes = [node("Unsqueeze", "x", "a", axes=[0]), node("Squeeze", "a", "b", axes=[0]),
                 node("ReduceSum", "b", "c", axes=[2], keepdims=1),
                 node("Split", "c", "y z", axis=1, split=[1, 2])]
        weights = {}
    else:
        nodes = [node("Unsqueeze", "x zero", "a"), node("Squeeze", "a zero", "b"),
                 node("ReduceSum", "b two", "c", keepdims=1),
                 node("Split", "c parts", "y z", axis=1)]
        weights = {"zero": np.array([0]), "two": np.array([2]), "parts": np.array([1, 2])}
    x = RNG.standard_normal((2, 3, 8)).astype("f4")
    fixed = value("x", ["batch", 3, 8])
    got = run(model(nodes, [fixed], ["y", "z"], weights=weights, opset=opset), {"x": x})
    np.testing.assert_allclose(got["y"], x.sum(2, keepdims=True)[:, :1], rtol=1e-5)
    np.testing.assert_allclose(got["z"], x.sum(2, keepdims=True)[:, 1:], rtol=1e-5)


def test_slices_of_opset_9_and_tensorflows_end():
    x = RNG.standard_normal((2, 3, 8)).astype("f4")
    old = [node("Slice", "x", "y", axes=[2], starts=[-3], ends=[10**9])]
    np.testing.assert_array_equal(run(model(old, [X], ["y"], opset=9), {"x": x})["y"], x[..., -3:])
    new = [node("Slice", "x start end axes", "y")]
    weights = {"start": np.array([1]), "end": np.array([10**9]), "axes": np.array([1])}
    got = run(model(new, [X], ["y"], weights=weights), {"x": x})["y"]
    np.testing.assert_array_equal(got, x[:, 1:])


def test_upsample_of_opset_9_repeats():
    image = value("x", [1, 1, 2, 3])
    x = RNG.standard_normal((1, 1, 2, 3)).astype("f4")
    proto = model([node("Upsample", "x s", "y", mode="nearest")], [image], ["y"],
                  weights={"s": np.array([1, 1, 2, 2], "f4")}, opset=9)
    np.testing.assert_array_equal(run(proto, {"x": x})["y"], x.repeat(2, 2).repeat(2, 3))


def test_group_norm_of_opset_18_has_one_scale_per_group():
    image = value("x", [2, 4, 3, 3])
    x = RNG.standard_normal((2, 4, 3, 3)).astype("f4")
    scale, bias = np.array([2, 3], "f4"), np.array([0.5, -1], "f4")
    proto = model([node("GroupNormalization", "x s b", "y", num_groups=2)], [image], ["y"],
                  weights={"s": scale, "b": bias}, opset=18)
    grouped = x.reshape(2, 2, -1).astype("f8")
    wanted = (grouped - grouped.mean(2, keepdims=True)) / np.sqrt(
        grouped.var(2, keepdims=True) + 1e-5)
    wanted = wanted * scale[:, None] + bias[:, None]
    np.testing.assert_allclose(run(proto, {"x": x})["y"], wanted.reshape(x.shape), atol=1e-4)


# -- what cannot be imported ----------------------------------------------------------------------

def failure(proto, **options) -> str:
    with pytest.raises(ModelError) as caught:
        import_model(proto, "m.onnx", **options)
    assert caught.value.exit_code == 3
    return str(caught.value)


def test_everything_unsupported_is_listed_at_once():
    nodes = [node("NonZero", "x", "a"), node("Det", "x", "b"), node("NonZero", "a", "c"),
             node("Cast", "x", "d", to=TensorProto.UINT16), node("Relu", "x", "e"),
             helper.make_node("Magic", ["e"], ["f"], name="n_f", domain="my.ops")]
    proto = model(nodes, [X], ["c", "b", "d", "f"])
    proto.opset_import.append(helper.make_opsetid("my.ops", 1))
    text = failure(proto)
    assert "4 operators in 5 nodes cannot be imported" in text
    assert "NonZero (2): ge2 has no such operator; at 'n_a', 'n_c'" in text
    assert "Det (1)" in text and "my.ops.Magic (1)" in text
    assert "Cast (1): element type uint16" in text


def test_elements_of_an_input_that_decide_a_shape():
    nodes = [node("Reshape", "x shape", "y")]
    proto = model(nodes, [X, value("shape", [2], INT64)], ["y"])
    text = failure(proto)
    assert "input 'shape' must be known" in text and "--constant" in text
    graph = import_model(proto, constants={"shape": np.array([-1, 8])}).graph
    assert str(graph.types["y"]) == "f32[batch*seq, 8]" and graph.inputs == ["x"]


def test_an_input_that_decides_a_branch_is_named():
    branches = {name: helper.make_graph([node(op, "x", "inner")], name, [], [value("inner", None)])
                for name, op in (("then_branch", "Exp"), ("else_branch", "Neg"))}
    proto = model([node("Equal", "rate wanted", "flag"), node("If", "flag", "y", **branches)],
                  [X, value("rate", [], INT64)], ["y"], weights={"wanted": np.array(16000)})
    text = failure(proto)
    assert "Fix rate with: ge2 import --constant" in text
    assert ops(proto, constants={"rate": np.array(16000)}) == ["EXP"]


def test_dimensions_that_could_be_fixed_are_named():
    proto = model([node("Reshape", "x shape", "y")], [X], ["y"],
                  weights={"shape": np.array([0, 4, 5])})
    assert "fix batch, seq with: ge2 import --sym" in failure(proto)


@pytest.mark.parametrize("opset", [1, 6, 29, 99])
def test_opsets_outside_of_what_is_known(opset):
    text = failure(model([node("Relu", "x", "y")], [X], ["y"], opset=opset))
    assert f"found opset {opset}" in text and "7 to 28" in text


def test_no_opset_at_all():
    proto = model([node("Relu", "x", "y")], [X], ["y"])
    del proto.opset_import[:]
    assert "no operator set" in failure(proto)


@pytest.mark.parametrize(("nodes", "wanted"), [
    ([node("Add", "x", "y")], "node 'n_y' (Add) is broken"),
    ([node("Relu", "x", "y", colour=3)], "node 'n_y' (Relu) is broken"),
    ([node("Relu", "nowhere", "y")], "reads 'nowhere' before anything makes it"),
    ([node("Relu", "x", "z")], "output 'y' is made by no node"),
    ([node("MatMul", "x x", "y")], "MatMul (1)"),
    ([node("Concat", "x x", "y")], "node 'n_y' (Concat) is broken"),
])
def test_broken_graphs(nodes, wanted):
    assert wanted in failure(model(nodes, [value("x", [2, 3])], ["y"]))


def test_strings_and_sequences_as_inputs():
    text = failure(model([node("Identity", "x", "y")],
                         [value("x", [2], TensorProto.STRING)], ["y"]))
    assert "input (1)" in text
    kind = helper.make_tensor_sequence_value_info("x", FLOAT, [2])
    assert "not a tensor" in failure(model([node("Identity", "x", "y")], [kind], ["y"]))
