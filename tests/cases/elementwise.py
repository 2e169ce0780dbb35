"""Problems of ELEMENTWISE: shapes, layouts, element types, coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ge2.compiler.ir.expr import (
    Expr,
    ExprBundle,
    cast,
    coord,
    exp,
    input,
    maximum,
    sqrt,
    tanh,
    where,
)
from ge2.contract import DTYPES

from .case import FLOATS, SIZES, Case, case, label
from .layouts import operand
from .pairwise import pairwise


def _compute(dtype: str) -> str:
    return DTYPES[dtype].compute


def _x(i: int, dtype: str) -> Expr:
    return input(i, _compute(dtype))


def _stored(value: Expr, dtype: str) -> Expr:
    return value if value.dtype == _compute(dtype) else cast(value, _compute(dtype))


_BUNDLES: dict[str, tuple[int, Callable[[Sequence[Expr]], tuple[Expr, ...]]]] = {
    "copy": (1, lambda x: (x[0],)),
    "add": (2, lambda x: (x[0] + x[1],)),
    "chain": (2, lambda x: (tanh(x[0]) * 2.0 + maximum(x[1], 0.0),)),
    "three": (3, lambda x: (where(x[0] > x[1], x[2], x[0] * x[1]),)),
    "two_outputs": (1, lambda x: (exp(x[0] * 0.1), sqrt(x[0] * x[0] + 1.0))),
}


def elementwise_cases() -> Iterator[Case]:
    """Yield the ELEMENTWISE cases."""
    shapes = [(n,) for n in SIZES] + [(3, 17), (16, 33), (33, 64), (2, 5, 31), (127, 8), (1, 129),
                                      (2, 3, 4, 5), (40, 264), (70_001,)]
    layouts = ("dense", "unaligned", "pitched", "step2", "flipped", "transposed", "per_column",
               "per_row", "scalar")
    rows = pairwise({"shape": shapes, "bundle": tuple(_BUNDLES), "x": layouts, "y": layouts,
                     "dtype": FLOATS, "out": ("f32", "f16", "bf16"),
                     "out_layout": ("dense", "dense", "unaligned", "pitched")})
    for row in rows:
        yield _elementwise_case(row)
    for row in pairwise({"shape": shapes[::2], "dtype": ("i32", "i64", "u8", "i8", "f64", "bool"),
                         "x": layouts, "bundle": ("copy",)}, seed=1):
        yield _elementwise_case({**row, "y": "dense", "out": row["dtype"], "out_layout": "dense"})
    for row in pairwise({"shape": ((33, 64), (40, 264), (127, 129), (2, 31, 65), (3, 17, 8),
                                   (300, 300), (2, 2, 64, 31)),
                         "bundle": ("copy", "add", "chain", "two_outputs"), "x": ("transposed",),
                         "y": ("transposed", "dense", "per_column", "per_row"), "dtype": FLOATS,
                         "out": FLOATS, "out_layout": ("dense", "pitched", "unaligned")}, seed=2):
        yield _elementwise_case(row)
    for shape in ((64,), (17, 33), (4, 5, 6)):
        index = sum((coord(a) * (a + 1) for a in range(1, len(shape))), coord(0))
        bundle = ExprBundle((_x(0, "f32") + cast(index, "f32"),))
        yield case(f"coords-{shape}", "ELEMENTWISE", [operand("f32", shape, "dense")],
                   [operand("f32", shape, "dense")], {"expr": bundle})


def _elementwise_case(row: Mapping[str, Any]) -> Case:
    count, build = _BUNDLES[row["bundle"]]
    shape, dtype = row["shape"], row["dtype"]
    dtypes = [dtype, dtype, "f32"][:count]
    names = [row["x"], row["y"], "dense"][:count]
    leaves = [_x(i, d) for i, d in enumerate(dtypes)]
    results = build(leaves)
    bundle = ExprBundle(tuple(_stored(r, row["out"]) for r in results))
    inputs = [operand(d, shape, n) for d, n in zip(dtypes, names, strict=True)]
    outputs = [operand(row["out"], shape, row["out_layout"]) for _ in results]
    return case(label(row), "ELEMENTWISE", inputs, outputs, {"expr": bundle})
