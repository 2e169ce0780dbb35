"""Problems of ATTENTION_GRAD: masks, shared heads, and lengths around tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ge2.launch.attention_grad import gradient_problem
from ge2.problem import Problem

from .case import Case
from .layouts import Operand

# (name, [batch, heads, queries, size], options); MASK stands for the element type itself.
_SHAPES: tuple[tuple[str, tuple[int, int, int, int], dict[str, Any]], ...] = (
    ("one", (1, 1, 1, 16), {}),
    ("groups", (1, 4, 20, 32), {"groups": 2, "keys": 40, "causal": True, "offset": 15}),
    ("padding", (2, 2, 9, 16), {"value": 24, "keys": 37, "mask": "MASK",
                                "mask_shape": (1, 2, 1, 37), "length": "i32"}),
    ("window", (1, 2, 70, 20), {"groups": 1, "left": 9, "causal": True, "mask": "bool"}),
    ("edge", (1, 1, 64, 64), {"keys": 65}),
    ("before the keys", (1, 1, 17, 33), {"keys": 16, "causal": True, "offset": -3}),
    ("wide", (1, 1, 33, 128), {"keys": 31, "length": "i64"}),
    ("wider", (1, 1, 5, 160), {"value": 200}),
    ("tiles", (1, 2, 70, 128), {"groups": 1, "keys": 66, "causal": True}),
    ("zero batch", (0, 2, 5, 32), {}),
)


def gradient_cases() -> Iterator[Case]:
    """Yield each shape in f16 and f32, and in turns in bf16 and f64."""
    for number, (name, q, options) in enumerate(_SHAPES):
        for dtype in ("f16", "f32", ("bf16", "f64")[number % 2]):
            given = {**options, "mask": dtype} if options.get("mask") == "MASK" else options
            yield gradient_case(f"{name}-{dtype}", gradient_problem(dtype, q, **given))


def gradient_case(name: str, problem: Problem) -> Case:
    """Return a case of a problem."""
    k = problem.inputs[1]
    assert k is not None
    operands = tuple(None if s is None else Operand(s, 0, s.max_offset + (1 if s.size else 0))
                     for s in problem.tensors)
    ranges = ((7, 0, k.shape[2] + 1),) if problem.inputs[7] is not None else ()
    return Case(name, problem, operands, ranges, terms=k.shape[2] + k.shape[3])


def long_gradients(dtype: str) -> Iterator[tuple[str, Problem]]:
    """Yield problems of the lengths of real sequences."""
    yield "full", gradient_problem(dtype, (2, 3, 600, 64))
    yield "causal", gradient_problem(dtype, (1, 8, 513, 128), groups=2, causal=True)
    yield "ragged", gradient_problem(dtype, (3, 2, 129, 80), keys=700, length="i32", causal=True)
