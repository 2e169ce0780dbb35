"""Binding named dimensions to the shapes of a call."""

from __future__ import annotations

import pytest

from ge2.compiler.concrete import bind_symbols, concretize
from ge2.compiler.ir import Graph, Node, TensorType
from ge2.compiler.ir.dim import symbol
from ge2.errors import GraphError, MissingInput, ShapeMismatch

B, S = symbol("batch"), symbol("seq")


def _graph() -> Graph:
    return Graph(
        inputs=["x", "y"], outputs=["z"],
        types={"x": TensorType("f32", (B, S, 8)), "y": TensorType("f32", (B, 2 * S)),
               "z": TensorType("f32", (B * S, 8))},
        nodes=[Node("RESHAPE", "r", ("x",), ("z",), {"shape": (B * S, 8)})])


def test_shapes_give_every_symbol_a_value() -> None:
    assert bind_symbols(_graph(), {"x": (3, 5, 8), "y": (3, 10)}) == {"batch": 3, "seq": 5}


@pytest.mark.parametrize(("shapes", "error"), [
    ({"x": (3, 5, 8)}, MissingInput),
    ({"x": (3, 5, 9), "y": (3, 10)}, ShapeMismatch),
    ({"x": (3, 5), "y": (3, 10)}, ShapeMismatch),
    ({"x": (3, 5, 8), "y": (4, 10)}, ShapeMismatch),
    ({"x": (3, 5, 8), "y": (3, 11)}, ShapeMismatch),
])
def test_shapes_that_do_not_fit_are_refused(shapes: dict, error: type) -> None:
    with pytest.raises(error):
        bind_symbols(_graph(), shapes)


def test_types_and_attributes_become_numbers() -> None:
    made = concretize(_graph(), {"batch": 3, "seq": 5})
    assert made.types["z"].shape == (15, 8)
    assert made.nodes[0].attrs["shape"] == (15, 8)
    assert _graph().types["z"].shape == (B * S, 8)


def test_a_missing_value_names_the_dimension() -> None:
    with pytest.raises(GraphError, match="seq"):
        concretize(_graph(), {"batch": 3})
