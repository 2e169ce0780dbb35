"""Problems of CONCAT, GATHER, PAD and RESAMPLE."""

from __future__ import annotations

from collections.abc import Iterator

from .case import SIZES, Case, case, label
from .layouts import operand
from .pairwise import at_least, pairwise


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
        yield case(label(row), "CONCAT", inputs, [operand(dtype, tuple(total), "dense")],
                   {"axis": axis})
    for dtype, widths, rows in (("f16", (37, 11, 128), 5), ("u8", (65, 3, 1, 40), 7),
                                ("f32", (9, 5), 61), ("i64", (1, 4, 2), 3)):
        yield case(f"{rows} rows of {widths} {dtype}", "CONCAT",
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
        yield case(label(row), "GATHER", inputs, [operand(row["dtype"], out, "dense")],
                   {"axis": axis}, index_range=((1, -row["extent"], row["extent"]),))
    for dtype, shape, count in (("f32", (7, 36), (4, 13)), ("f16", (3, 2, 520), (1029,)),
                                ("i64", (5, 6), (3,)), ("u8", (2, 48), (40,))):
        extent = shape[-1]
        yield case(f"elements of {shape[:-1]} rows of {extent} {dtype}", "GATHER",
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
        yield case(label(row), "PAD", [operand(row["dtype"], shape, row["x"])],
                   [operand(row["dtype"], out, "dense")],
                   {"mode": row["mode"], "pads": (*low, *high), "value": row["value"]})
    for mode, dtype, shape, pads in (
            ("constant", "f16", (2, 3, 9, 26), (0, 0, 1, 1, 0, 0, 1, 1)),
            ("reflect", "f32", (3, 90, 13), (0, 3, 3, 0, 3, 3)),
            ("edge", "u8", (5, 61), (1, -2, 2, 19)), ("wrap", "f64", (40, 7), (0, 5, 0, -1))):
        rank = len(shape)
        out = tuple(n + pads[i] + pads[rank + i] for i, n in enumerate(shape))
        yield case(f"rows of {shape} {dtype} by {pads} {mode}", "PAD",
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
        yield case(label(row), "RESAMPLE", inputs, [operand(dtype, tuple(out), "dense")],
                   {"axes": axes}, index_range=tuple(spans), terms=row["taps"] ** 2,
                   positive=True)
    for dtype, shape, size, taps in (("f16", (2, 3, 9, 11), (18, 84), (2, 2)),
                                     ("f32", (3, 7, 5), (20, 12), (4, 2)),
                                     ("bf16", (1, 33, 8), (7, 132), (1, 4)),
                                     ("f64", (2, 6, 4), (12, 6), (2, 1))):
        rank, weight = len(shape), "f64" if dtype == "f64" else "f32"
        tables = [(n, t) for n, t in zip(size, taps, strict=True)]
        yield case(f"{dtype} {shape} to {size} by {taps} taps", "RESAMPLE",
                   [operand(dtype, shape, "dense"),
                    *(operand(kind, table, "dense") for table in tables
                      for kind in ("i32", weight))],
                   [operand(dtype, (*shape[:-2], *size), "dense")], {"axes": (rank - 2, rank - 1)},
                   index_range=((1, 0, shape[-2]), (3, 0, shape[-1])), terms=taps[0] * taps[1],
                   positive=True)
