"""The standard sweep: what `ge2 tune --op NAME` measures when no shape is given.

Products: square ones, those of transformer layers, few rows against a large matrix, and batches.
Rows, elementwise operators, convolutions and movement: sizes from cached to far beyond the cache.
"""

from __future__ import annotations

from typing import Any

Sizes = tuple[int, int, int, int]

_SQUARE = ((512, 512, 512, 1), (1024, 1024, 1024, 1), (2048, 2048, 2048, 1), (4096, 4096, 4096, 1))
_LAYERS = ((128, 1536, 384, 1), (1024, 3072, 768, 1), (4096, 768, 3072, 1), (8192, 4096, 1024, 1),
           (300, 1000, 520, 1))
_SKINNY = ((1, 4096, 4096, 1), (4, 11008, 4096, 1), (16, 4096, 4096, 1), (32, 4096, 4096, 1),
           (4096, 1, 4096, 1))
_BATCHED = ((128, 128, 64, 96),)

Row = tuple[str, Any, Any, str]
"""(dtype, operand shapes, attributes, graph-level operator)"""


def _gemm_rows() -> list[tuple[str, Sizes, str]]:
    rows = [("f16", sizes, "") for sizes in (*_SQUARE, *_LAYERS, *_SKINNY, *_BATCHED)]
    rows += [("bf16", sizes, "") for sizes in (_SQUARE[2], _LAYERS[1], _SKINNY[0])]
    rows += [("f32", sizes, "") for sizes in (*_SQUARE[:3], *_LAYERS[:2], _SKINNY[0], _SKINNY[2])]
    rows += [("f16", _SQUARE[2], layout) for layout in ("nt", "tn")]
    return rows


_ROWS = ((16384, 1024), (4096, 4096), (512, 384), (64, 65536), (8, 1000))


def _row_rows() -> list[Row]:
    rows: list[Row] = []
    for dtype in ("f32", "f16"):
        for shape in _ROWS:
            last = (shape[1],)
            rows.append((dtype, [shape], {}, "SOFTMAX"))
            rows.append((dtype, [shape, last, last], {}, "LAYER_NORM"))
        rows.append((dtype, [_ROWS[0]], {"axes": [1], "keepdims": False}, "REDUCE_SUM"))
        rows.append((dtype, [(65536, 512)], {"axes": [0], "keepdims": False}, "REDUCE_SUM"))
    return rows


def _elementwise_rows() -> list[Row]:
    rows: list[Row] = []
    for dtype in ("f32", "f16"):
        for shape in ((8192, 8192), (1024, 1024), (128, 384)):
            rows.append((dtype, [shape, shape], {}, "ADD"))
            rows.append((dtype, [shape], {}, "GELU"))
    return rows


def _conv_rows() -> list[Row]:
    rows: list[Row] = []
    window = {"pads": [1, 1, 1, 1]}
    for dtype in ("f16", "f32"):
        rows += [
            (dtype, [(16, 64, 56, 56), (64, 64, 3, 3)], window, "CONV2D"),
            (dtype, [(16, 256, 14, 14), (256, 256, 3, 3)], window, "CONV2D"),
            (dtype, [(16, 256, 56, 56), (64, 256, 1, 1)], {}, "CONV2D"),
            (dtype, [(16, 144, 28, 28), (144, 1, 3, 3)], {**window, "group": 144}, "CONV2D"),
        ]
    return rows


def _attention_rows() -> list[Row]:
    rows: list[Row] = []
    for shape, attrs in (((32, 12, 128, 32), {}), ((16, 16, 1024, 64), {}),
                         ((2, 16, 2048, 128), {"is_causal": True}),
                         ((4, 32, 4096, 128), {"is_causal": True}), ((4, 8, 1000, 80), {})):
        rows.append(("f16", [shape] * 3, attrs, "ATTENTION"))
    rows.append(("f32", [(32, 12, 128, 32)] * 3, {}, "ATTENTION"))
    rows.append(("bf16", [(8, 32, 1, 128), *[(8, 8, 4096, 128)] * 2], {}, "ATTENTION"))
    return rows


def _only(rows: list[Row], op: str) -> list[Row]:
    return [row for row in rows if row[3] == op]


SWEEPS: dict[str, list[Any]] = {
    "GEMM_BIAS_ACT": _gemm_rows(),
    "ROW": _row_rows(),
    "ELEMENTWISE": _elementwise_rows(),
    "CONV2D": _conv_rows(),
    "ATTENTION": _attention_rows(),
    **{op: _only(_row_rows(), op) for op in ("SOFTMAX", "LAYER_NORM", "REDUCE_SUM")},
}
