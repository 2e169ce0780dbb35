"""Views: the memory that a view names holds what the operator returns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ge2.compiler import opdefs
from ge2.compiler.ir import Node, properties
from ge2.compiler.kernels.strides import collapse, reshape_strides
from ge2.compiler.kernels.views import View, view
from ge2.errors import StrideMismatch
from ge2.problem import TensorSpec

from .problem_values import read

shapes = st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4).map(tuple)


def _steps(draw, shape):
    """Draw a view operator that fits shape."""
    rank = len(shape)
    kind = draw(st.sampled_from(["TRANSPOSE", "RESHAPE", "SLICE", "FLIP", "EXPAND", "UNSQUEEZE"]))
    if kind == "TRANSPOSE":
        return kind, {"perm": draw(st.permutations(range(rank)))}
    if kind == "RESHAPE":
        flat = int(np.prod(shape))
        first = draw(st.sampled_from([n for n in range(1, flat + 1) if flat % n == 0]))
        return kind, {"shape": [first, flat // first]}
    if kind == "SLICE":
        step = draw(st.sampled_from([-2, -1, 1, 2]))
        start = draw(st.integers(0, shape[0] - 1))
        return kind, {"starts": [start], "ends": [2**31 if step > 0 else -(2**31)],
                      "axes": [0], "steps": [step]}
    if kind == "FLIP":
        return kind, {"axes": [draw(st.integers(0, rank - 1))]}
    if kind == "EXPAND":
        return kind, {"shape": [2, *shape]}
    return kind, {"axes": [draw(st.integers(0, rank))]}


@given(st.data(), shapes)
def test_chains_of_views_name_the_right_elements(data, shape):
    buffer = np.arange(np.prod(shape), dtype=np.float32)
    expected, current = buffer.reshape(shape), View(TensorSpec.dense("f32", shape))
    for _ in range(data.draw(st.integers(1, 4))):
        op, attrs = _steps(data.draw, expected.shape)
        made = view(Node(op, "n", ("x",), ("y",), attrs), current)
        if made is None:
            assert op == "RESHAPE"
            break
        expected, current = opdefs.reference(op, [expected], attrs)[0], made
        if expected.size:
            np.testing.assert_array_equal(read(buffer, made.offset, made.spec), expected)
        assert made.spec.shape == expected.shape


@given(st.data(), shapes)
def test_reshape_strides_agrees_with_numpy(data, shape):
    base = np.zeros(shape, np.int8).transpose(data.draw(st.permutations(range(len(shape)))))
    flat = base.size
    first = data.draw(st.sampled_from([n for n in range(1, flat + 1) if flat % n == 0]))
    new = (first, flat // first)
    found = reshape_strides(base.shape, base.strides, new)
    reshaped = base.view()
    try:
        reshaped.shape = new
    except AttributeError:
        assert found is None
    else:
        assert found is not None
        for extent, mine, theirs in zip(new, found, reshaped.strides, strict=True):
            assert extent == 1 or mine == theirs


def test_a_view_inside_a_buffer_knows_its_alignment():
    source = View(TensorSpec.dense("f16", (4, 6)))
    node = Node("SLICE", "n", ("x",), ("y",), {"starts": [1, 1], "ends": [4, 3]})
    made = view(node, source)
    assert made == View(TensorSpec("f16", (3, 2), (6, 1), 2), 7)


@pytest.mark.parametrize("pieces", [{"num_outputs": 2}, {"split": [1, 3]}])
def test_pieces_of_a_split_are_views(pieces):
    if "SPLIT" not in opdefs.OPS:
        pytest.skip("SPLIT is not defined")
    node = Node("SPLIT", "n", ("x",), ("a", "b"), {"axis": 1, **pieces})
    buffer = np.arange(12, dtype=np.float32)
    source = View(TensorSpec.dense("f32", (3, 4)))
    expected = opdefs.reference("SPLIT", [buffer.reshape(3, 4)], node.attrs)
    for index, piece in enumerate(expected):
        made = view(node, source, index)
        np.testing.assert_array_equal(read(buffer, made.offset, made.spec), piece)


def test_what_is_no_view_says_so():
    source = View(TensorSpec("f32", (4, 6), (1, 4)))
    assert view(Node("RESHAPE", "n", ("x",), ("y",), {"shape": [24]}), source) is None
    assert view(Node("RELU", "n", ("x",), ("y",)), source) is None
    with properties.without("TRANSPOSE", "view"):
        assert view(Node("TRANSPOSE", "n", ("x",), ("y",)), source) is None


def test_collapse_merges_only_where_all_agree():
    assert collapse((2, 3, 4), [(12, 4, 1), (12, 4, 1)]) == ((24,), [(1,), (1,)])
    assert collapse((2, 3, 4), [(12, 4, 1), (0, 4, 1)]) == ((2, 12), [(12, 1), (0, 1)])
    assert collapse((1, 1), [(5, 5)]) == ((1,), [(0,)])


def test_expand_refuses_what_does_not_broadcast():
    from ge2.compiler.kernels.strides import expand

    assert expand(TensorSpec.dense("f32", (1, 3)), (2, 2, 3)).strides == (0, 0, 1)
    with pytest.raises(StrideMismatch):
        expand(TensorSpec.dense("f32", (2,)), (3,))
