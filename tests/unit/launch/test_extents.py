"""Examples in other sizes: every operator has them, with orders of axes and absences kept."""

from __future__ import annotations

import pytest

from ge2.compiler.kernels import registry
from ge2.errors import Invalid, ShapeMismatch
from ge2.launch.attention_examples import attention_problem
from ge2.launch.conv import conv_problem
from ge2.launch.extents import check_extents, extent_names, with_extents
from ge2.launch.gather import gather_problem
from ge2.launch.rule import LAUNCH_RULES
from ge2.launch.schemas import KERNEL_OPS
from ge2.problem import Problem, TensorSpec

# By how many extents an operator's sizes have; whole tiles and groups where kernels ask for some.
SIZES = {2: (1024, 8), 3: (16, 72, 64), 4: (3, 16, 9, 8), 5: (2, 8, 10, 12, 16)}


@pytest.mark.parametrize("op_type", KERNEL_OPS)
def test_every_operator_has_sizes(op_type: str) -> None:
    names = extent_names(op_type)
    sized = 0
    for kernel in registry.kernels_for(op_type):
        for example in LAUNCH_RULES[kernel.launch].examples(kernel.variants[0]):
            rank = len(example.outputs[0].shape)
            wanted = (9, 130, 8, 12)[:rank] if names[0].startswith("*") else SIZES[len(names)]
            try:
                problem = with_extents(example, wanted)
            except ShapeMismatch:  # groups that do not divide, more inputs than the size has room
                continue
            sized += problem.op_type == op_type and problem.attrs == example.attrs
    assert sized


def test_axes_keep_their_order_in_memory() -> None:
    example = attention_problem("f16", (2, 4, 40, 64), groups=2, mask="f16",
                                mask_shape=(2, 1, 1, 40), side_by_side=True)
    q, k, _, mask, *rest = with_extents(example, (3, 6, 5, 7, 32)).inputs
    assert q == TensorSpec("f16", (3, 6, 5, 32), (960, 32, 192, 1))
    assert k is not None and k.shape == (3, 3, 7, 32)
    assert mask is not None and (mask.shape, mask.strides) == ((3, 6, 5, 7), (7, 0, 0, 1))
    assert rest == [None, None, None]


def test_results_follow_from_windows_and_places() -> None:
    conv = with_extents(conv_problem("f16", (1, 8, 9, 9), (8, 8, 3, 3)), (2, 24, 12, 10, 40))
    assert conv.inputs[1] is not None and conv.inputs[1].shape[:2] == (40, 24)
    gather = with_extents(gather_problem("f32", (4, 10, 3), "i64", 1), (5, 20, 6, 9))
    assert [spec.shape for spec in gather.tensors if spec] == [(5, 20, 6), (9,), (5, 9, 6)]


@pytest.mark.parametrize(("example", "extents", "message"), [
    (attention_problem("f16", (1, 4, 8, 16), groups=2), (1, 3, 8, 8, 16), "do not divide"),
    (gather_problem("f32", (33,), "i64", 0), (5, 20, 6, 9), "no axes there")])
def test_an_example_says_why_it_has_no_such_size(example: Problem, extents: tuple[int, ...],
                                                 message: str) -> None:
    with pytest.raises(ShapeMismatch, match=message):
        with_extents(example, extents)


def test_a_wrong_number_of_extents_names_them() -> None:
    with pytest.raises(Invalid, match="wanted BATCH,HEADS,QUERIES,KEYS,SIZE"):
        check_extents("ATTENTION", (3, 4))
