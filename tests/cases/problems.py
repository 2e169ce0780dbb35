"""About 200 problems per kernel-level operator: pairwise over sizes, layouts, dtypes, options."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ge2.compiler.ir.expr import (
    Expr,
    ExprBundle,
    cast,
    coord,
    exp,
    input,
    maximum,
    minimum,
    sqrt,
    tanh,
    where,
)
from ge2.compiler.opdefs.gemm_epilogue import epilogue_with_z, gemm_epilogue
from ge2.contract import DTYPES, ActKind
from ge2.problem import Problem, TensorSpec

from .layouts import Operand, operand
from .pairwise import at_least, pairwise

SIZES = (0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 127, 129)
FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class Case:
    """A problem with the storage of its operands.

    Attributes:
        name: shown by pytest.
        problem: its specs are the operands'.
        operands: inputs (None where absent), then outputs.
        index_range: for integer index inputs, slot -> (low, high).
        given: for integer inputs, slot -> all elements.
        terms: how many products or elements one output sums up; scales the tolerance.
        positive: whether float inputs are drawn from [0.5, 1.5], so that sums stay off zero.
    """

    name: str
    problem: Problem
    operands: tuple[Operand | None, ...]
    index_range: tuple[tuple[int, int, int], ...] = ()
    given: tuple[tuple[int, tuple[int, ...]], ...] = ()
    terms: int = 1
    positive: bool = False


def _case(name: str, op_type: str, inputs: Sequence[Operand | None], outputs: Sequence[Operand],
          attrs: Mapping[str, Hashable], **rest: Any) -> Case:
    problem = Problem(op_type, tuple(o.spec if o else None for o in inputs),
                      tuple(o.spec for o in outputs), tuple(sorted(attrs.items())))
    return Case(name, problem, (*inputs, *outputs), **rest)


def _label(row: Mapping[str, Any]) -> str:
    return "-".join("x".join(map(str, v)) if isinstance(v, tuple) else str(v)
                    for v in row.values())


def _compute(dtype: str) -> str:
    return DTYPES[dtype].compute


# -- elementwise ----------------------------------------------------------------------------------


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
        yield _case(f"coords-{shape}", "ELEMENTWISE", [operand("f32", shape, "dense")],
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
    return _case(_label(row), "ELEMENTWISE", inputs, outputs, {"expr": bundle})


# -- GEMM -----------------------------------------------------------------------------------------

# (bias, C, activation): few, since each is a kernel source of its own.
_STYLES = ((None, None, "none"), ("per_column", None, "relu"), ("per_row", None, "gelu"),
           ("scalar", "dense", "none"), ("dense", "per_row", "silu"), (None, "dense", "relu"))
_EXTENTS = (*SIZES, 300)


def gemm_cases(dtype: str) -> Iterator[Case]:
    """Yield the GEMM_BIAS_ACT cases of one element type."""
    extents = _EXTENTS[::2] if dtype == "bf16" else _EXTENTS
    layouts = ("dense", "dense", "pitched", "padded", "unaligned")
    rows = pairwise({
        "m": extents, "n": extents, "k": extents, "batch": ((), (3,), (2, 2)),
        "trans_a": (False, True), "trans_b": (False, True), "a": layouts, "b": layouts,
        "style": _STYLES, "out": ("dense", "pitched"), "share_b": (False, True)})
    # Whole tiles and whole 16-byte rows, then few rows or columns against long sums.
    whole = {"trans_a": (False, True), "trans_b": (False, True), "a": ("dense", "pitched"),
             "b": ("dense", "pitched"), "style": _STYLES, "out": ("dense", "pitched")}
    rows += pairwise({"m": (64, 128, 200, 264, 520), "n": (64, 136, 256, 392, 512),
                      "k": (8, 64, 72, 1024), "batch": ((), (), (3,)), **whole,
                      "share_b": (False, True)}, seed=1)
    rows += pairwise({"m": (1, 2, 3, 4, 5, 8, 13, 16), "n": (8, 64, 1000, 1024, 4096),
                      "k": (64, 1024, 4096, 4104), "batch": ((),), **whole,
                      "share_b": (False,)}, seed=2)
    rows += pairwise({"m": (1000, 4096), "n": (1, 2, 4, 8), "k": (1024, 4096), "batch": ((),),
                      **whole, "share_b": (False,)}, seed=3)
    for row in rows:
        yield _gemm_case(row, dtype)
    for row in pairwise({"m": (1, 72, 264), "n": (8, 136, 256), "k": (16, 200), "batch": ((), (3,)),
                         "trans_a": (False, True), "trans_b": (False, True), "a": ("dense",),
                         "b": ("dense",), "style": _STYLES, "out": ("dense", "pitched"),
                         "share_b": (False,), "outputs": (2, "f32")}, seed=4):
        yield _gemm_case(row, dtype)
    # A sum of rounded outputs may lose all its digits, squares and maxima do not.
    kinds = ("sum", "sumsquare", "max") if dtype == "f32" else ("sumsquare", "max")
    for row in pairwise({"m": (1, 65, 200), "n": (64, 136, 300), "k": (16,), "batch": ((), (3,)),
                         "trans_a": (False,), "trans_b": (False, True), "a": ("dense",),
                         "b": ("dense",), "style": _STYLES[:2], "out": ("dense", "pitched"),
                         "share_b": (False,), "rows": kinds}, seed=6):
        yield _gemm_case(row, dtype)
    if dtype == "f32":
        for row in pairwise({"m": (1, 64, 200, 264), "n": (4, 136, 256), "k": (1, 64, 200, 333),
                             "batch": ((), (3,)), "trans_a": (False, True),
                             "trans_b": (False, True), "a": ("dense", "pitched", "unaligned"),
                             "b": ("dense", "pitched", "unaligned"), "style": _STYLES,
                             "out": ("dense", "pitched"), "share_b": (False, True),
                             "outputs": (1, 2), "f32": ("tf32", "x3")}, seed=5):
            yield _gemm_case(row, dtype)
        for kind in ActKind:
            full = {**rows[0], "m": 33, "n": 65, "k": 40,
                    "style": ("per_column", None, kind.name.lower())}
            yield _gemm_case(full, dtype)


def _gemm_case(row: Mapping[str, Any], dtype: str) -> Case:
    m, n, k, batch = row["m"], row["n"], row["k"], row["batch"]
    a = operand(dtype, (*batch, *((k, m) if row["trans_a"] else (m, k))), row["a"])
    b_shape = (k, n) if not row["trans_b"] else (n, k)
    b = operand(dtype, (*batch, *b_shape), row["b"])
    if row["share_b"] and batch:
        b = _shared(operand(dtype, b_shape, row["b"]), batch)
    bias_layout, c_layout, act = row["style"]
    bias = operand(dtype, (*batch, m, n), bias_layout) if bias_layout else None
    c = operand(dtype, (*batch, m, n), c_layout) if c_layout else None
    outputs = row.get("outputs", 1)
    y = [operand(outputs if outputs == "f32" else dtype, (*batch, m, n), row["out"])
         for _ in range(2 if outputs == 2 else 1)]
    if "rows" in row:
        y.append(operand(dtype, (*batch, m, 1), "dense"))
    alpha, beta = (0.5, 2.0) if c_layout == "dense" else (1.0, 1.0)
    build = epilogue_with_z if outputs == 2 else gemm_epilogue
    epilogue = build(dtype, (bias and dtype, c and dtype), alpha, beta, act, 0.01)
    attrs = {"trans_a": row["trans_a"], "trans_b": row["trans_b"], "alpha": alpha, "beta": beta,
             "act": act, "leaky_slope": 0.01, "epilogue": epilogue, "f32": row.get("f32", "ieee"),
             "rows": row.get("rows", "none")}
    return _case(f"{dtype}-{_label(row)}", "GEMM_BIAS_ACT", [a, b, bias, c], y, attrs,
                 terms=max(k, 1))


# (operand, scale per row and column, output, activation)
_BYTE_STYLES = (("i8", "i8", None, "i32"), ("i8", "i8", "per_column", "f16"),
                ("u8", "i8", "per_row", "f32"), ("i8", "u8", "scalar", "bf16"),
                ("u8", "u8", None, "i32"), ("u8", "i8", "requantise", "u8"))
_F8_STYLES = (("f8e4m3", "f8e4m3", "per_column", "bf16"), ("f8e5m2", "f8e4m3", "scalar", "f32"),
              ("f8e4m3", "f8e5m2", None, "f16"), ("f8e5m2", "f8e5m2", "per_row", "f32"))

_ALIKE_STYLES = (("i8", "i8", None, "i32"), ("i8", "i8", "per_column", "f16"),
                 ("u8", "u8", None, "i32"), ("f8e4m3", "f8e4m3", "per_row", "bf16"),
                 ("f8e5m2", "f8e5m2", "scalar", "f32"))


def gemm_byte_cases() -> Iterator[Case]:
    """Yield products of 8-bit operands: sums, scaled sums, and sums scaled and saturated to bytes.
    """
    for styles in (_BYTE_STYLES, _F8_STYLES):
        for row in _byte_rows(styles):
            yield _gemm_byte_case(row)
    # Both along k, and all rows whole 16-byte units.
    for row in pairwise({
            "m": (1, 72, 130, 264), "n": (16, 64, 136), "k": (16, 128, 400), "batch": ((), (3,)),
            "trans_a": (False,), "trans_b": (True,), "a": ("dense", "pitched"),
            "b": ("dense", "pitched"), "style": _ALIKE_STYLES, "out": ("dense", "pitched")},
            seed=8):
        yield _gemm_byte_case(row)


def _byte_rows(styles: Sequence[Any]) -> list[dict[str, Any]]:
    return pairwise({
        "m": (1, 17, 64, 130), "n": (1, 33, 64, 136), "k": (0, 1, 16, 33, 128, 400),
        "batch": ((), (), (3,)), "trans_a": (False, True), "trans_b": (True, False),
        "a": ("dense", "pitched", "unaligned"), "b": ("dense", "pitched", "unaligned"),
        "style": styles, "out": ("dense", "pitched", "unaligned")}, seed=6)


def _gemm_byte_case(row: Mapping[str, Any]) -> Case:
    m, n, k, batch = row["m"], row["n"], row["k"], row["batch"]
    first, second, style, out = row["style"]
    a = operand(first, (*batch, *((k, m) if row["trans_a"] else (m, k))), row["a"])
    b = operand(second, (*batch, *((n, k) if row["trans_b"] else (k, n))), row["b"])
    integers = DTYPES[first].kind == "int"
    acc = input(0, "i32" if integers else "f32")
    factor = 2.0**-8 if integers else 1.0
    scaled = cast(acc, "f32") * (input(1, "f32") * factor) if style else acc
    if style == "requantise":
        saturated = maximum(minimum(scaled.apply("round") + 3.0, 255.0), 0.0)
        scaled, style = cast(saturated, "i32"), "per_column"
    scale = operand("f32", (*batch, m, n), style) if style else None
    attrs = {"trans_a": row["trans_a"], "trans_b": row["trans_b"], "alpha": 1.0, "beta": 1.0,
             "act": "none", "leaky_slope": 0.01, "epilogue": ExprBundle((scaled,)), "f32": "ieee"}
    return _case(f"bytes-{_label(row)}", "GEMM_BIAS_ACT", [a, b, scale, None],
                 [operand(out, (*batch, m, n), row["out"])], attrs, terms=max(k, 1))


def _shared(one: Operand, batch: tuple[int, ...]) -> Operand:
    """Return a matrix that all batch entries share, by stride 0."""
    spec = one.spec
    wide = TensorSpec(spec.dtype, (*batch, *spec.shape), ((0,) * len(batch)) + spec.strides,
                      spec.align)
    return Operand(wide, one.offset, one.elements)


def norm_gemm_cases() -> Iterator[Case]:
    """Yield the NORM_GEMM cases: x [m, k], scale and shift [k]."""
    rows = at_least(100, {
        "dtype": FLOATS, "m": (0, 1, 3, 33, 64, 129), "n": (1, 8, 65, 128, 200),
        "k": (1, 7, 8, 65, 96, 200, 384), "norm": ("LAYER_NORM", "RMS_NORM"),
        "trans_b": (False, True), "x": ("dense", "pitched", "unaligned", "transposed"),
        "b": ("dense", "pitched", "unaligned"), "parameters": ("dense", "unaligned"),
        "style": _STYLES, "out": ("dense", "pitched"), "rows": (True, False)})
    for row in rows:
        dtype, m, n, k = row["dtype"], row["m"], row["n"], row["k"]
        bias_layout, c_layout, act = row["style"]
        bias = operand(dtype, (m, n), bias_layout) if bias_layout else None
        c = operand(dtype, (m, n), c_layout) if c_layout else None
        shift = operand(dtype, (k,), row["parameters"]) if row["norm"] == "LAYER_NORM" else None
        inputs = [operand(dtype, (m, k), row["x"]), operand(dtype, (k,), row["parameters"]),
                  operand(dtype, (n, k) if row["trans_b"] else (k, n), row["b"]), shift, bias, c]
        outputs = [operand(dtype, (m, n), row["out"])]
        outputs += [operand(dtype, (m, k), row["out"])] if row["rows"] else []
        epilogue = gemm_epilogue(dtype, (bias and dtype, c and dtype), 1.0, 2.0, act, 0.01)
        attrs = {"norm": row["norm"], "epsilon": 1e-5, "trans_b": row["trans_b"], "alpha": 1.0,
                 "beta": 2.0, "act": act, "leaky_slope": 0.01, "epilogue": epilogue}
        yield _case(_label(row), "NORM_GEMM", inputs, outputs, attrs, terms=max(k, 1))


_NBITS_STYLES = (("f16", "f16", "none"), ("bf16", "bf16", "gelu"), ("f16", "f32", "none"),
                 ("f32", "f32", "none"), ("bf16", "f32", "relu"))


def nbits_cases() -> Iterator[Case]:
    """Yield the MATMUL_NBITS cases: few and many rows, ragged depths, groups of every size."""
    rows = pairwise({
        "m": (1, 3, 8, 9, 16, 33, 130), "n": (1, 15, 33, 64, 136), "batch": ((), (), (3,)),
        "k": (0, 1, 8, 31, 64, 136, 264, 513), "block": (2, 16, 32, 64, 128, 256),
        "style": _NBITS_STYLES, "zeros": (False, True), "bias": ("per_column", None),
        "a": ("dense", "dense", "pitched", "unaligned"), "codes": ("dense", "dense", "unaligned"),
        "out": ("dense", "pitched", "unaligned")}, seed=7)
    for row in rows:
        yield _nbits_case(row)


def _nbits_case(row: Mapping[str, Any]) -> Case:
    m, n, k, block, batch = (row[name] for name in ("m", "n", "k", "block", "batch"))
    dtype, scale, act = row["style"]
    blocks = -(-k // block)
    y = (*batch, m, n)
    bias = operand(dtype, y, row["bias"]) if row["bias"] else None
    zeros = operand("u8", (n, (blocks + 1) // 2), "dense") if row["zeros"] else None
    return _case(_label(row), "MATMUL_NBITS", [
        operand(dtype, (*batch, m, k), row["a"]),
        operand("u8", (n, blocks, block // 2), row["codes"]),
        operand(scale, (n, blocks), "dense"), zeros, bias], [operand(dtype, y, row["out"])],
        {"act": act, "block_size": block, "leaky_slope": 0.01},
        index_range=((1, 0, 256), (3, 0, 256)), terms=max(k, 1))


# -- rows -----------------------------------------------------------------------------------------

_ROW_LENGTHS = (*SIZES, 1000, 1025, 5000, 20_000)


def row_cases(ops: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the ROW cases.

    Args:
        ops: name -> RowOp.
    """
    rows = at_least(220, {
        "n": _ROW_LENGTHS, "rows": (0, 1, 2, 3, 17, 64, 129), "op": tuple(ops), "dtype": FLOATS,
        "out": ("same", "same", "f32"),
        "x": ("dense", "pitched", "unaligned", "padded", "step2", "transposed"),
        "extra": ("per_column", "dense")})
    rows += at_least(60, {"n": (9000, 33_333, 70_000), "rows": (1, 2, 3, 5), "op": tuple(ops),
                          "dtype": FLOATS, "out": ("same",), "extra": ("per_column",),
                          "x": ("dense", "unaligned", "transposed", "pitched")})
    # Only the largest cluster of blocks holds this.
    rows += [{"n": 140_000, "rows": 1, "op": next(iter(ops)), "dtype": "f32", "out": "same",
              "x": "dense", "extra": "per_column"}]
    for row in rows:
        op = ops[row["op"]]
        shape, dtype = (row["rows"], row["n"]), row["dtype"]
        if row["n"] == 0 and row["op"] in ("max", "min", "mean", "softmax"):
            continue  # no value is right for a maximum of nothing
        out = dtype if row["out"] == "same" else "f32"
        inputs = [operand(dtype, shape, row["x"]) for _ in range(op.n_inputs)]
        inputs += [operand(dtype, shape, row["extra"]) for _ in range(op.n_extras)]
        outputs = [operand(out, shape if kind == "row" else shape[:1], "dense")
                   for kind in op.outputs]
        yield _case(_label(row), "ROW", inputs, outputs, {"row": op}, terms=max(row["n"], 1))


def lab_cases() -> Iterator[Case]:
    """Yield the LAB_NORMALIZE_SUM cases; a tensor map wants rows of whole 16-byte units."""
    for row in pairwise({"rows": (0, *SIZES, 300), "columns": (4, 8, 16, 60, 64, 128, 132, 1000),
                         "x": ("dense", "pitched")}):
        shape = (row["rows"], row["columns"])
        yield _case(_label(row), "LAB_NORMALIZE_SUM", [operand("f32", shape, row["x"])],
                    [operand("f32", shape, "dense")], {}, terms=max(shape[0] * shape[1], 1),
                    positive=True)


# -- movement -------------------------------------------------------------------------------------


def concat_cases() -> Iterator[Case]:
    """Yield the CONCAT cases."""
    rows = pairwise({"a": SIZES, "b": SIZES, "outer": (1, 3, 16), "inner": (1, 2, 7, 8, 33),
                     "axis": (0, 1, 2), "dtype": ("f32", "f16", "i64", "u8"),
                     "x": ("dense", "pitched", "unaligned", "transposed")})
    for row in rows:
        axis = row["axis"]
        shapes = []
        for extent in (row["a"], row["b"], 5):
            shape = [row["outer"], 4, row["inner"]]
            shape[axis] = extent
            shapes.append(tuple(shape))
        total = list(shapes[0])
        total[axis] = row["a"] + row["b"] + 5
        dtype = row["dtype"]
        inputs = [operand(dtype, shapes[0], row["x"]), operand(dtype, shapes[1], "dense"),
                  operand(dtype, shapes[2], "dense")]
        yield _case(_label(row), "CONCAT", inputs, [operand(dtype, tuple(total), "dense")],
                    {"axis": axis})
    for dtype, widths, rows in (("f16", (37, 11, 128), 5), ("u8", (65, 3, 1, 40), 7),
                                ("f32", (9, 5), 61), ("i64", (1, 4, 2), 3)):
        yield _case(f"{rows} rows of {widths} {dtype}", "CONCAT",
                    [operand(dtype, (rows, width), "dense") for width in widths],
                    [operand(dtype, (rows, sum(widths)), "dense")], {"axis": 1})


def gather_cases() -> Iterator[Case]:
    """Yield the GATHER cases; indices run from -extent to extent - 1."""
    rows = at_least(200, {"extent": SIZES[1:], "count": ((), (0,), (1,), (7,), (3, 5), (129,)),
                     "outer": (1, 3, 17), "inner": (1, 2, 8, 31, 64, 300),
                     "axis": (0, 1), "dtype": ("f32", "f16", "bf16", "i64", "u8"),
                     "index": ("i32", "i64"), "x": ("dense", "pitched", "unaligned")})
    for row in rows:
        shape = ((row["extent"], row["inner"]) if row["axis"] == 0
                 else (row["outer"], row["extent"], row["inner"]))
        axis = row["axis"]
        out = (*shape[:axis], *row["count"], *shape[axis + 1:])
        layout = row["x"] if axis == 0 else "dense"  # one step for all outer axes
        inputs = [operand(row["dtype"], shape, layout),
                  operand(row["index"], row["count"], "dense")]
        yield _case(_label(row), "GATHER", inputs, [operand(row["dtype"], out, "dense")],
                    {"axis": axis}, index_range=((1, -row["extent"], row["extent"]),))
    for dtype, shape, count in (("f32", (7, 36), (4, 13)), ("f16", (3, 2, 520), (1029,)),
                                ("i64", (5, 6), (3,)), ("u8", (2, 48), (40,))):
        extent = shape[-1]
        yield _case(f"elements of {shape[:-1]} rows of {extent} {dtype}", "GATHER",
                    [operand(dtype, shape, "dense"), operand("i64", count, "dense")],
                    [operand(dtype, (*shape[:-1], *count), "dense")], {"axis": len(shape) - 1},
                    index_range=((1, -extent, extent),))


def pad_cases() -> Iterator[Case]:
    """Yield the PAD cases: every mode on first, middle and last axes, crops, empty tensors."""
    rows = at_least(200, {
        "shape": ((7,), (1, 33), (5, 8), (3, 4, 9), (2, 16, 7, 8), (0, 5)),
        "dtype": ("f32", "f16", "bf16", "f64", "i64", "u8", "bool"),
        "low": (0, 1, 3, -1), "high": (0, 1, 8, -2), "axes": ("last", "first", "all"),
        "mode": ("constant", "reflect", "edge", "wrap"), "value": (0.0, 1.0),
        "x": ("dense", "transposed", "unaligned", "pitched", "flipped")})
    for row in rows:
        shape = row["shape"]
        rank = len(shape)
        chosen = {"last": (rank - 1,), "first": (0,), "all": range(rank)}[row["axes"]]
        low, high = ([row[end] if axis in chosen and shape[axis] > 3 else 0
                      for axis in range(rank)] for end in ("low", "high"))
        if 0 in shape and row["mode"] != "constant":
            continue
        out = tuple(n + a + b for n, a, b in zip(shape, low, high, strict=True))
        yield _case(_label(row), "PAD", [operand(row["dtype"], shape, row["x"])],
                    [operand(row["dtype"], out, "dense")],
                    {"mode": row["mode"], "pads": (*low, *high), "value": row["value"]})
    for mode, dtype, shape, pads in (
            ("constant", "f16", (2, 3, 9, 26), (0, 0, 1, 1, 0, 0, 1, 1)),
            ("reflect", "f32", (3, 90, 13), (0, 3, 3, 0, 3, 3)),
            ("edge", "u8", (5, 61), (1, -2, 2, 19)), ("wrap", "f64", (40, 7), (0, 5, 0, -1))):
        rank = len(shape)
        out = tuple(n + pads[i] + pads[rank + i] for i, n in enumerate(shape))
        yield _case(f"rows of {shape} {dtype} by {pads} {mode}", "PAD",
                    [operand(dtype, shape, "dense")], [operand(dtype, out, "dense")],
                    {"mode": mode, "pads": pads, "value": 1.0})


def resample_cases() -> Iterator[Case]:
    """Yield the RESAMPLE cases: one and two axes, picks and sums of few and many taps."""
    rows = at_least(200, {
        "shape": ((9, 5), (3, 8, 7), (2, 3, 6, 5), (1, 4, 8, 16)), "axes": ("last", "first", "two"),
        "size": (1, 2, 7, 12, 33), "other": (4, 5, 16), "taps": (1, 2, 3, 4, 6),
        "weighs": ("both", "none", "one"), "dtype": ("f32", "f16", "bf16", "f64", "u8", "i64")})
    for row in rows:
        shape, dtype = row["shape"], row["dtype"]
        rank = len(shape)
        axes = {"last": (rank - 1,), "first": (0,), "two": (rank - 2, rank - 1)}[row["axes"]]
        weighs = "none" if dtype in ("u8", "i64") else row["weighs"]
        out, inputs, spans = list(shape), [operand(dtype, shape, "dense")], []
        for index, axis in enumerate(axes):
            sums = weighs == "both" or (weighs == "one" and index == 0)
            table = ((row["size"], row["other"])[index], row["taps"] if sums else 1)
            out[axis] = table[0]
            spans.append((len(inputs), 0, shape[axis]))
            weight = operand("f64" if dtype == "f64" else "f32", table, "dense")
            inputs += [operand("i32", table, "dense"), weight if sums else None]
        yield _case(_label(row), "RESAMPLE", inputs, [operand(dtype, tuple(out), "dense")],
                    {"axes": axes}, index_range=tuple(spans), terms=row["taps"] ** 2,
                    positive=True)
    for dtype, shape, size, taps in (("f16", (2, 3, 9, 11), (18, 84), (2, 2)),
                                     ("f32", (3, 7, 5), (20, 12), (4, 2)),
                                     ("bf16", (1, 33, 8), (7, 132), (1, 4)),
                                     ("f64", (2, 6, 4), (12, 6), (2, 1))):
        rank, weight = len(shape), "f64" if dtype == "f64" else "f32"
        tables = [(n, t) for n, t in zip(size, taps, strict=True)]
        yield _case(f"{dtype} {shape} to {size} by {taps} taps", "RESAMPLE",
                    [operand(dtype, shape, "dense"),
                     *(operand(kind, table, "dense") for table in tables
                       for kind in ("i32", weight))],
                    [operand(dtype, (*shape[:-2], *size), "dense")], {"axes": (rank - 2, rank - 1)},
                    index_range=((1, 0, shape[-2]), (3, 0, shape[-1])), terms=taps[0] * taps[1],
                    positive=True)


# -- windows --------------------------------------------------------------------------------------


def _out(size: int, window: int, stride: int, pads: tuple[int, int], dilation: int) -> int:
    return (size + sum(pads) - dilation * (window - 1) - 1) // stride + 1


def conv_cases() -> Iterator[Case]:
    """Yield the CONV2D cases."""
    rows = at_least(220, {
        "batch": (0, 1, 2, 3), "channels": (1, 2, 3, 8, 16, 33), "filters": (1, 2, 7, 16, 33),
        "size": ((7, 8), (16, 15), (31, 3), (33, 17)), "window": ((1, 1), (3, 3), (2, 5)),
        "stride": ((1, 1), (2, 2), (1, 3)), "pads": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 0, 1, 3)),
        "dilation": ((1, 1), (2, 1)), "bias": (True, False), "act": ("none", "relu", "silu"),
        "group": (1, 2, "depthwise"), "residual": (False, True), "dtype": FLOATS})
    rows += at_least(12, {
        "batch": (1, 2), "channels": (40, 64, 72), "filters": (64, 72, 130),
        "size": ((5, 6), (6, 5)), "window": ((1, 1), (3, 3), (2, 3)), "stride": ((1, 1),),
        "pads": ((1, 1, 1, 1), (2, 0, 1, 3), (0, 0, 0, 0)), "dilation": ((1, 1), (1, 2)),
        "bias": (True, False), "act": ("relu", "none"), "group": (1, 2),
        "residual": (False, True), "dtype": ("f16", "bf16")})
    for row in rows:
        yield from _conv_case(row)


def _conv_case(row: Mapping[str, Any]) -> Iterator[Case]:
    channels, filters, group = row["channels"], row["filters"], row["group"]
    group = channels if group == "depthwise" else group
    channels = math.ceil(channels / group) * group
    filters = math.ceil(filters / group) * group
    height, width = (_out(s, w, st, (row["pads"][i], row["pads"][i + 2]), d)
                     for i, (s, w, st, d) in enumerate(zip(
                         row["size"], row["window"], row["stride"], row["dilation"],
                         strict=True)))
    if height < 1 or width < 1:
        return
    dtype = row["dtype"]
    inputs = [operand(dtype, (row["batch"], channels, *row["size"]), "dense"),
              operand(dtype, (filters, channels // group, *row["window"]), "dense"),
              operand(dtype, (filters,), "dense") if row["bias"] else None]
    attrs = {"strides": row["stride"], "pads": row["pads"], "dilations": row["dilation"],
             "group": group, "act": row["act"], "leaky_slope": 0.01}
    result = operand(dtype, (row["batch"], filters, height, width), "dense")
    if row["residual"]:
        inputs.append(result)
    yield _case(_label(row), "CONV2D", inputs, [result], attrs,
                terms=channels // group * row["window"][0] * row["window"][1])


def pool_cases() -> Iterator[Case]:
    """Yield the POOL2D cases."""
    rows = at_least(400, {
        "batch": (0, 1, 3), "channels": (1, 2, 7, 16), "size": ((7, 8), (16, 15), (31, 3), (1, 1)),
        "window": ((1, 1), (2, 2), (3, 2)), "stride": ((1, 1), (2, 2), (3, 1)),
        "pads": ((0, 0, 0, 0), (1, 1, 1, 1), (1, 0, 0, 1)), "dilation": ((1, 1), (2, 1)),
        "kind": ("max", "avg"), "include": (False, True), "dtype": FLOATS})
    for row in rows:
        sides = list(zip(row["size"], row["window"], row["stride"], row["dilation"],
                         strict=True))
        height, width = (_out(s, w, st, (row["pads"][i], row["pads"][i + 2]), d)
                         for i, (s, w, st, d) in enumerate(sides))
        if height < 1 or width < 1 or any(p >= w for p, w in zip(
                row["pads"], row["window"] * 2, strict=True)):
            continue  # a window that lies in the padding alone has no maximum
        attrs = {"kind": row["kind"], "kernel_shape": row["window"], "strides": row["stride"],
                 "pads": row["pads"], "dilations": row["dilation"],
                 "count_include_pad": row["kind"] == "avg" and row["include"]}
        shape = (row["batch"], row["channels"])
        yield _case(_label(row), "POOL2D", [operand(row["dtype"], (*shape, *row["size"]), "dense")],
                    [operand(row["dtype"], (*shape, height, width), "dense")], attrs)


@cache
def cases_for(op_type: str) -> tuple[Case, ...]:
    """Return the cases of a kernel-level operator; () for one that has none here."""
    if op_type == "ROW":
        from ge2.compiler.ir.row_ops import build_row_op

        names = ("softmax", "log_softmax", "layer_norm", "sum", "mean", "max")
        return tuple(row_cases({name: build_row_op(name) for name in names}))
    if op_type == "ATTENTION":
        from .attention import attention_cases

        return tuple(attention_cases())
    if op_type == "PAGED_ATTENTION":
        from .attention import paged_cases

        return tuple(paged_cases())
    if op_type == "ATTENTION_GRAD":
        from .attention_grad import gradient_cases

        return tuple(gradient_cases())
    makers: dict[str, Callable[[], Iterator[Case]]] = {
        "ELEMENTWISE": elementwise_cases,
        "GEMM_BIAS_ACT": lambda: (*(case for d in FLOATS for case in gemm_cases(d)),
                                  *gemm_byte_cases()),
        "NORM_GEMM": norm_gemm_cases,
        "MATMUL_NBITS": nbits_cases,
        "CONCAT": concat_cases,
        "GATHER": gather_cases,
        "PAD": pad_cases,
        "RESAMPLE": resample_cases,
        "CONV2D": conv_cases,
        "POOL2D": pool_cases,
        "LAB_NORMALIZE_SUM": lab_cases,
    }
    return tuple(makers[op_type]()) if op_type in makers else ()
