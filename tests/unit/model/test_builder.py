"""Writing graphs in Python: errors where they are made, files that load again."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path

import numpy as np
import pytest

import ge2
from ge2.compiler import opdefs
from ge2.contract import numpy_dtype
from ge2.errors import GraphError
from ge2.model import GraphBuilder, Value
from ge2.model.operator_methods import method_name, operator_signature
from ge2.model.weights import open_weights, save_weights


def small() -> GraphBuilder:
    g = GraphBuilder("small")
    x = g.input("x", "f32", ["batch", 4])
    w = g.weight("w", np.arange(12, dtype="f4").reshape(4, 3))
    g.output("y", g.relu(x @ w - 1.0, name="act"))
    return g


def test_save_and_load(tmp_path: Path) -> None:
    path = small().save(tmp_path)
    assert path == tmp_path / "model.json"
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("f4")
    want = np.maximum(x @ np.arange(12, dtype="f4").reshape(4, 3) - 1, 0)
    np.testing.assert_allclose(ge2.load(path, backend="cpu")(x)["y"], want, rtol=1e-6)
    np.testing.assert_allclose(small().model(backend="cpu")(x)["y"], want, rtol=1e-6)


def test_saved_file_has_one_node_per_line(tmp_path: Path) -> None:
    text = small().save(tmp_path).read_text()
    assert sum('"op"' in line for line in text.splitlines()) == 3
    assert json.loads(text)["nodes"][2]["name"] == "act"


def test_error_at_the_line_that_made_it() -> None:
    g = GraphBuilder()
    x = g.input("x", "f32", ["batch", 4])
    with pytest.raises(GraphError) as caught:
        g.matmul(x, np.ones((5, 3), "f4"), name="fc")
    assert "MATMUL 'fc'" in str(caught.value)
    assert "x: f32[batch, 4]" in str(caught.value)
    assert "f32[5, 3]" in str(caught.value)
    assert caught.traceback[0].lineno == inspect.getsourcelines(
        test_error_at_the_line_that_made_it)[1] + 3


def test_stubs_have_every_operator_with_the_parameters_of_its_method() -> None:
    """mypy reads typed_graph.py with them; docs/generate.py --check tells when they are old."""
    module = ast.parse(Path("ge2/model/operator_stubs.pyi").read_text())
    stubs, = (node for node in module.body if isinstance(node, ast.ClassDef))
    found = {node.name: node for node in stubs.body if isinstance(node, ast.FunctionDef)}
    assert set(found) == {method_name(op) for op in opdefs.OPS}
    for op in opdefs.OPS:
        args = found[method_name(op)].args
        names = [*(a.arg for a in args.args[1:]), *([args.vararg.arg] if args.vararg else []),
                 *(a.arg for a in args.kwonlyargs)]
        assert names == list(operator_signature(op).parameters)


def test_words_of_python_get_an_underscore_and_numbers_may_be_named() -> None:
    g = GraphBuilder()
    x = g.input("x", "f32", [4])
    both = g.and_(g.less(a=x, b=2.0), g.not_(g.less(x, -2.0)))
    assert both.dtype == "bool" and "not_" in dir(g)


def test_mistakes() -> None:
    g = GraphBuilder()
    x = g.input("x", "f32", ["batch", 4])
    with pytest.raises(GraphError, match="'x' is already used"):
        g.input("x", "f32", [1])
    with pytest.raises(GraphError, match="unknown element type; found 'float'"):
        g.input("z", "float", [1])
    with pytest.raises(AttributeError, match="no operator 'sofmax'; did you mean softmax"):
        g.sofmax(x)
    with pytest.raises(GraphError, match=r"wrong number of inputs; found 1; wanted MATMUL"):
        g.matmul(x)
    with pytest.raises(GraphError, match="has no attribute 'axes'"):
        g.softmax(x, axes=1)
    with pytest.raises(GraphError, match="belongs to another graph"):
        GraphBuilder().relu(x)
    with pytest.raises(GraphError, match="no output"):
        g.save("never-written")
    g.relu(x, name="r")
    with pytest.raises(GraphError, match="node name 'r' is already used"):
        g.relu(x, name="r")


def test_inputs_weights_and_outputs_may_be_outputs_again() -> None:
    g = GraphBuilder()
    x = g.input("x", "f32", ["n"])
    w = g.weight("w", np.arange(2, dtype="f4"))
    y = g.exp(x)
    g.output("y", y)
    g.output("x", x)
    for name, value in (("x2", x), ("w2", w), ("y2", y)):
        g.output(name, value)
    given = np.array([0.0, 1.0, 2.0], "f4")
    result = g.model(backend="cpu")(given)
    for name, wanted in (("x", given), ("x2", given), ("w2", [0, 1]), ("y2", result["y"])):
        np.testing.assert_array_equal(result[name], wanted)
    with pytest.raises(GraphError, match="'y' is already an output"):
        g.output("y", y)


def test_output_keeps_earlier_uses() -> None:
    g = GraphBuilder()
    x = g.input("x", "f32", [3])
    y = g.exp(x)
    g.output("exponential", y)
    g.output("root", g.sqrt(y))
    result = g.model(backend="cpu")(np.ones(3, "f4"))
    np.testing.assert_allclose(result["root"] ** 2, result["exponential"], rtol=1e-6)


@pytest.mark.parametrize("op", sorted(opdefs.OPS))
def test_every_operator_has_a_documented_method(op: str) -> None:
    method = getattr(GraphBuilder(), op.lower())
    definition = opdefs.OPS[op]
    parameters = inspect.signature(method).parameters
    assert [n.rstrip("?*") for n in definition.inputs] + [
        a.name for a in definition.attrs] + ["name"] == list(parameters)
    assert definition.doc in method.__doc__
    for spec in definition.attrs:
        assert f"{spec.name}: {spec.kind}" in method.__doc__
    assert inspect.signature(method).return_annotation in (Value, tuple[Value, ...])


def test_optional_inputs_by_name() -> None:
    g = GraphBuilder()
    x = g.input("x", "f32", [2, 4])
    scale = g.weight("scale", np.ones(4, "f4"))
    bias = g.weight("bias", np.full(4, 2, "f4"))
    g.output("y", g.layer_norm(x, scale, bias=bias))
    assert g.graph.nodes[0].inputs == ("x", "scale", "bias")


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64", "i32", "i64", "bool", "u8", "i8"])
def test_weights_of_every_dtype(tmp_path: Path, dtype: str) -> None:
    array = (np.arange(12) % 5).reshape(3, 4).astype(numpy_dtype(dtype))
    path = tmp_path / "w.safetensors"
    save_weights(path, {"a": array, "scalar": array[0, 1].reshape(()), "none": array[:0],
                        "odd": np.ones(3, "u1")})
    got = open_weights(path, "test")
    assert got["a"].dtype == array.dtype
    np.testing.assert_array_equal(got["a"], array)
    assert got["scalar"].shape == ()
    assert got["none"].shape == (0, 4)
    np.testing.assert_array_equal(got["odd"], np.ones(3, "u1"))


def test_files_agree_with_the_safetensors_library(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    arrays = {"b": np.arange(5, dtype="u1"), "a": np.arange(6, dtype="f4").reshape(2, 3),
              "c": np.arange(3, dtype="i8")}
    save_weights(tmp_path / "ours", arrays)
    save_file(arrays, tmp_path / "theirs", metadata={"format": "np"})
    for name, array in load_file(tmp_path / "ours").items():
        np.testing.assert_array_equal(array, arrays[name])
    for name, array in open_weights(tmp_path / "theirs", "test").items():
        np.testing.assert_array_equal(array, arrays[name])
