"""Problems of row operators and of the lab's normalised sum."""

from __future__ import annotations

from collections.abc import Iterator

from ge2.compiler.ir.row_ops import build_row_op

from .case import FLOATS, SIZES, Case, case, label
from .layouts import operand
from .pairwise import at_least, pairwise

_ROW_LENGTHS = (*SIZES, 1000, 1025, 5000, 20_000)


def row_cases() -> Iterator[Case]:
    """Yield the ROW cases."""
    ops = {name: build_row_op(name)
           for name in ("softmax", "log_softmax", "layer_norm", "sum", "mean", "max")}
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
        yield case(label(row), "ROW", inputs, outputs, {"row": op}, terms=max(row["n"], 1))


def lab_cases() -> Iterator[Case]:
    """Yield the LAB_NORMALIZE_SUM cases; a tensor map wants rows of whole 16-byte units."""
    for row in pairwise({"rows": (0, *SIZES, 300), "columns": (4, 8, 16, 60, 64, 128, 132, 1000),
                         "x": ("dense", "pitched")}):
        shape = (row["rows"], row["columns"])
        yield case(label(row), "LAB_NORMALIZE_SUM", [operand("f32", shape, row["x"])],
                   [operand("f32", shape, "dense")], {}, terms=max(shape[0] * shape[1], 1),
                   positive=True)
