"""Problems of CONV2D and POOL2D."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from .case import FLOATS, Case, case, label
from .layouts import operand
from .pairwise import at_least


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
    yield case(label(row), "CONV2D", inputs, [result], attrs,
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
        yield case(label(row), "POOL2D", [operand(row["dtype"], (*shape, *row["size"]), "dense")],
                   [operand(row["dtype"], (*shape, height, width), "dense")], attrs)
