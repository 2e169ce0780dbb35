"""Attention on its way to a kernel: operands as they lie, masks by stride 0, one formula."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir import Node
from ge2.compiler.ir.expr import ExprBundle, cast, coord, input
from ge2.compiler.kernels.lower import lower
from ge2.errors import StrideMismatch
from ge2.launch.attention_call import FAR, attention_call
from ge2.launch.attention_examples import alibi, attention_problem, slopes
from ge2.launch.check import check_problem
from ge2.problem import TensorSpec
from ge2.runtime.problem_reference import reference

DRAW = np.random.default_rng(11)


def _lowered(shapes, attrs=None, specs=(), dtype="f32"):
    given = [TensorSpec.dense(dtype, s) if s else None for s in shapes]
    given = [*given, *specs]
    names = tuple("" if s is None else f"v{i}" for i, s in enumerate(given))
    node = Node("ATTENTION", "n", names, ("y",), attrs or {})
    problem = lower(node, {n: s for n, s in zip(names, given, strict=True) if n})
    check_problem(problem)
    return problem


def test_heads_side_by_side_are_strides():
    q, k, v = ((2, 5, 32), (2, 7, 16), (2, 7, 12))
    problem = _lowered([q, k, v], {"q_num_heads": 4, "kv_num_heads": 2})
    call = attention_call(problem)
    assert (call.batch, call.heads, call.groups, call.queries, call.keys) == (2, 4, 2, 5, 7)
    assert (call.size, call.value_size, call.scale) == (8, 6, pytest.approx(8**-0.5))
    assert (call.q.batch, call.q.head, call.q.row) == (5 * 32, 8, 32)
    assert (call.y.batch, call.y.head, call.y.row) == (5 * 24, 6, 24)
    assert call.is_plain and not call.is_masked


def test_slices_of_a_merged_projection_are_read_in_place():
    q = TensorSpec("f16", (2, 6, 64), (6 * 192, 192, 1))
    problem = _lowered([], {"q_num_heads": 2, "kv_num_heads": 2}, [q, q, q])
    assert attention_call(problem).k.row == 192
    assert problem.inputs[0].strides == (6 * 192, 32, 192, 1)


def test_elements_of_a_head_must_be_neighbours():
    apart = TensorSpec("f32", (1, 2, 4, 8), (64, 32, 1, 4))
    problem = _lowered([], {}, [apart, apart, apart])
    with pytest.raises(StrideMismatch):
        attention_call(problem)
    with pytest.raises(StrideMismatch):
        _lowered([], {"q_num_heads": 2, "kv_num_heads": 2},
                 [TensorSpec("f32", (1, 4, 16), (64, 1, 4))] * 3)


def test_causal_and_windows_are_one_band():
    shapes = [(1, 2, 5, 8)] * 3
    bands = {call.left: call.right for call in (attention_call(_lowered(shapes, a)) for a in (
        {}, {"is_causal": True, "left_window_size": 3}, {"left_window_size": 2,
                                                         "right_window_size": 1}))}
    assert bands == {FAR: FAR, 3: 0, 2: 1}


def test_masks_broadcast_by_stride_zero():
    mask = TensorSpec.dense("bool", (2, 1, 1, 6))
    call = attention_call(_lowered([(2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8)], {}, [mask]))
    assert call.mask is not None and call.is_masked and not call.is_plain
    assert (call.mask.batch, call.mask.row, call.mask.column) == ((0, 6, 0), 0, 1)


def test_softcap_and_formula_become_one():
    formula = ExprBundle((input(0) + input(1) * cast(coord(3) - coord(2), "f32"),
                          coord(3) <= coord(2)))
    extra = TensorSpec.dense("f32", (4, 1, 1))
    problem = _lowered([(2, 4, 5, 8)] * 3, {"softcap": 2.0, "score": formula},
                       [None] * 4 + [extra])
    call = attention_call(problem)
    assert call.score is not None and call.is_masked and [n for n, _ in call.extras] == ["extra0"]
    assert call.extras[0][1].batch == (0, 0, 1) and "tanh" in call.score.text
    arrays = [DRAW.normal(size=(2, 4, 5, 8)) for _ in range(3)]
    arrays += [None] * 4 + [DRAW.normal(size=(4, 1, 1))]
    wanted, = opdefs.reference("ATTENTION", arrays, {"softcap": 2.0, "score": formula})
    expanded = [*arrays[:7], np.broadcast_to(arrays[7], (2, 4, 5, 5))]
    np.testing.assert_allclose(reference(problem, expanded)[0], wanted, rtol=1e-12)


def test_args_keep_tensor_maps_aligned_and_members_apart():
    call = attention_call(attention_problem("f16", (1, 2, 5, 32), score=alibi("f16"), lse=True,
                                            extras=(slopes("f32", 2),)))
    more = (("int", "splits", "i4"), ("float*", "partial", "u8"))
    args, holes = call.pack(("map_q",), more, {"splits": 3}, {"partial": (-1, 0)})
    assert len(args) % 64 == 0 and len({hole.offset for hole in holes}) == len(holes)
    assert {hole.slot for hole in holes} == {0, 1, 2, 7, 8, 9, -1}
