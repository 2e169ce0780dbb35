"""Problems of ATTENTION: masks, heads, lengths around tiles, layouts and element types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from ge2.contract import DTYPES
from ge2.launch.attention_examples import alibi, attention_problem, slopes, softcap
from ge2.launch.attention_paged import paged_problem
from ge2.problem import Problem, TensorSpec

from .case import Case
from .layouts import Operand

# (name, [batch, heads, queries, size], options); MASK and WIDE stand for the element type itself
# and for what an operand of a formula has then.
_SHAPES: tuple[tuple[str, tuple[int, int, int, int], dict[str, Any]], ...] = (
    ("one", (1, 1, 1, 32), {}),
    ("whole tile", (1, 2, 64, 32), {"keys": 128, "causal": True, "offset": 64}),
    ("one key", (2, 2, 2, 64), {"keys": 1, "lse": True}),
    ("no key", (1, 2, 3, 16), {"keys": 0, "causal": True, "lse": True}),
    ("edge", (1, 2, 63, 64), {"keys": 65, "lse": True}),
    ("causal", (1, 2, 65, 64), {"causal": True, "lse": True, "side_by_side": True}),
    ("causal behind", (1, 1, 5, 128), {"keys": 127, "causal": True, "offset": 122}),
    ("causal before", (1, 1, 70, 32), {"causal": True, "offset": -3, "lse": True}),
    ("window", (1, 1, 127, 32), {"left": 20, "right": 3}),
    ("far window", (1, 1, 130, 40), {"left": 5, "right": -1, "offset": 40, "keys": 90}),
    ("groups", (1, 6, 20, 48), {"groups": 2, "keys": 70, "side_by_side": True}),
    ("lengths", (3, 2, 9, 32), {"keys": 66, "length": "i32", "causal": True, "lse": True}),
    ("padding", (2, 2, 33, 32), {"keys": 64, "mask": "MASK", "mask_shape": (2, 1, 1, 64),
                                 "side_by_side": True}),
    ("flags", (1, 2, 17, 64), {"keys": 63, "mask": "bool", "lse": True}),
    ("bias", (1, 2, 16, 24), {"keys": 33, "mask": "MASK", "mask_shape": (1, 2, 16, 33)}),
    ("alibi", (1, 2, 34, 96), {"score": alibi, "extras": ("WIDE",), "causal": True}),
    ("softcap", (1, 1, 40, 80), {"score": softcap, "value": 64}),
    ("odd", (1, 2, 19, 21), {"value": 13, "align": 2, "keys": 30}),
    ("wide", (1, 1, 18, 256), {"keys": 40, "lse": True}),
    ("narrow value", (1, 1, 66, 192), {"value": 32}),
    ("wide softcap", (1, 1, 30, 192), {"score": softcap}),
    ("zero batch", (0, 2, 5, 32), {"lse": True}),
)


def attention_cases() -> Iterator[Case]:
    """Yield each shape in f16 and f32, and in turns in bf16 and f64."""
    for number, (name, q, options) in enumerate(_SHAPES):
        for dtype in ("f16", "f32", ("bf16", "f64")[number % 2]):
            given = dict(options)
            if given.get("mask") == "MASK":
                given["mask"] = dtype
            if "score" in given:
                given["score"] = given["score"](dtype)
            if "extras" in given:
                given["extras"] = (slopes("f64" if dtype == "f64" else "f32", q[1]),)
            given["align"] = max(given.get("align", 16), DTYPES[dtype].itemsize)
            yield attention_case(f"{name}-{dtype}", attention_problem(dtype, q, **given))
    for dtype in ("f16", "f32"):
        yield packed_case(f"packed-{dtype}", dtype, (5, 0, 66, 1), 2, 32, causal=True, lse=True)


def paged_cases() -> Iterator[Case]:
    """Yield page sizes, layouts and lengths."""
    for dtype in ("f16", "bf16"):
        for name, q, options in (
                ("pages", (2, 4, 1, 32), {"groups": 2, "pages": 7, "rows": 16, "most": 4}),
                ("wide pages", (1, 3, 2, 80), {"groups": 1, "pages": 3, "rows": 48, "most": 2,
                                               "side_by_side": True, "causal": True}),
                ("flags", (3, 2, 1, 128), {"groups": 2, "pages": 20, "rows": 32, "most": 3,
                                           "mask": "bool", "lse": True, "table": "i64"})):
            problem = paged_problem(dtype, q, **options)
            case = attention_case(f"{name}-{dtype}", problem)
            keys = options["rows"] * options["most"]
            ranges = ((3, 0, options["pages"]), (4, 0, keys + 1))
            yield replace(case, index_range=ranges, terms=keys + q[3])


def packed_case(name: str, dtype: str, lengths: Sequence[int], heads: int, size: int,
                **options: Any) -> Case:
    """Return a case of sequences of given lengths, one behind another."""
    starts = tuple(accumulate(lengths, initial=0))
    problem = attention_problem(dtype, (1, heads, starts[-1], size), starts="i32",
                                sequences=len(lengths), **options)
    return replace(attention_case(name, problem), given=((5, starts), (6, starts)))


def attention_case(name: str, problem: Problem) -> Case:
    """Return a case of a problem without packed sequences."""
    k = problem.inputs[1]
    assert k is not None
    operands = tuple(None if s is None else _placed(s) for s in problem.tensors)
    ranges = ((4, 0, k.shape[2] + 1),) if problem.inputs[4] is not None else ()
    return Case(name, problem, operands, ranges, terms=k.shape[2] + k.shape[3])


def _placed(spec: TensorSpec) -> Operand:
    offset = 1 if spec.align < 16 else 0
    return Operand(replace(spec), offset, offset + spec.max_offset + (1 if spec.size else 0))
