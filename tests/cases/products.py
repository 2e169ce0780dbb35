"""Problems of matrix products: GEMM_BIAS_ACT of floats and bytes, NORM_GEMM, MATMUL_NBITS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ge2.compiler.ir.expr import (
    ExprBundle,
    cast,
    input,
    maximum,
    minimum,
)
from ge2.compiler.opdefs.gemm_epilogue import epilogue_with_z, gemm_epilogue
from ge2.contract import DTYPES, ActKind
from ge2.problem import TensorSpec

from .case import FLOATS, SIZES, Case, case, label
from .layouts import Operand, operand
from .pairwise import at_least, pairwise

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
    return case(f"{dtype}-{label(row)}", "GEMM_BIAS_ACT", [a, b, bias, c], y, attrs,
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
    return case(f"bytes-{label(row)}", "GEMM_BIAS_ACT", [a, b, scale, None],
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
        yield case(label(row), "NORM_GEMM", inputs, outputs, attrs, terms=max(k, 1))


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
    return case(label(row), "MATMUL_NBITS", [
        operand(dtype, (*batch, m, k), row["a"]),
        operand("u8", (n, blocks, block // 2), row["codes"]),
        operand(scale, (n, blocks), "dense"), zeros, bias], [operand(dtype, y, row["out"])],
        {"act": act, "block_size": block, "leaky_slope": 0.01},
        index_range=((1, 0, 256), (3, 0, 256)), terms=max(k, 1))
