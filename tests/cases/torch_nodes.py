"""What torch makes of the nodes of cases/drawn.py, in double precision on the node's device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from .drawn import slice_index
from .nodes import Example

Attrs = Mapping[str, Any]

_FILLS = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def expected(example: Example, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the first output; floats are computed and returned in f64."""
    exact = [x.double() if x.is_floating_point() else x for x in inputs]
    if example.op == "SLICE":
        return _slice(exact[0], slice_index(example))
    return _TABLE[example.op](exact, example.attrs)


def _slice(x: torch.Tensor, index: Sequence[slice]) -> torch.Tensor:
    """Return x[index]; torch has no steps backwards."""
    for axis, each in enumerate(index):
        start, stop, step = each.indices(x.shape[axis])
        places = torch.arange(start, stop, step) if len(range(start, stop, step)) else []
        x = x.index_select(axis, torch.as_tensor(places, dtype=torch.int64, device=x.device))
    return x


def _pad(x: torch.Tensor, attrs: Attrs) -> torch.Tensor:
    rank, both = x.dim(), attrs["pads"]
    flat = [both[end * rank + axis] for axis in reversed(range(rank)) for end in (0, 1)]
    if attrs["mode"] == "constant":
        return functional.pad(x, flat, value=attrs["value"])
    return functional.pad(x[None, None], flat, mode=_FILLS[attrs["mode"]])[0, 0]


def _gather(x: torch.Tensor, places: torch.Tensor, attrs: Attrs) -> torch.Tensor:
    axis = attrs["axis"] % x.dim()
    flat = x.index_select(axis, places.long().reshape(-1) % x.shape[axis])
    return flat.reshape(*x.shape[:axis], *places.shape, *x.shape[axis + 1:])


def _conv(inputs: Sequence[torch.Tensor], attrs: Attrs) -> torch.Tensor:
    return functional.conv2d(*inputs, stride=attrs["strides"], padding=attrs["pads"][:2],
                             dilation=attrs["dilations"], groups=attrs["group"])


def _pool(pool: Callable[..., torch.Tensor], x: torch.Tensor, attrs: Attrs) -> torch.Tensor:
    return pool(x, attrs["kernel_shape"], attrs["strides"], attrs["pads"][:2])


_avg_pool = partial(functional.avg_pool2d, count_include_pad=False)


def _resize(x: torch.Tensor, attrs: Attrs) -> torch.Tensor:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(attrs["mode"], "nearest")
    corners = attrs["coordinate_transformation_mode"] == "align_corners"
    return functional.interpolate(x, size=attrs["sizes"], mode=mode,
                                  align_corners=None if mode == "nearest" else corners)


_TABLE: dict[str, Callable[[Sequence[torch.Tensor], Attrs], torch.Tensor]] = {
    "ADD": lambda x, a: x[0] + x[1],
    "MUL": lambda x, a: x[0] * x[1],
    "LESS": lambda x, a: x[0] < x[1],
    "WHERE": lambda x, a: torch.where(*x),
    "REDUCE_SUM": lambda x, a: x[0].sum(a["axes"], a["keepdims"]),
    "REDUCE_MEAN": lambda x, a: x[0].mean(a["axes"], a["keepdims"]),
    "REDUCE_MAX": lambda x, a: x[0].amax(a["axes"], a["keepdims"]),
    "TRANSPOSE": lambda x, a: x[0].permute(a["perm"]),
    "FLIP": lambda x, a: x[0].flip(a["axes"]),
    "CONCAT": lambda x, a: torch.cat(list(x), a["axis"]),
    "TILE": lambda x, a: x[0].repeat(a["repeats"]),
    "EXPAND": lambda x, a: x[0].expand(2, *x[0].shape),
    "PAD": lambda x, a: _pad(x[0], a),
    "GATHER": lambda x, a: _gather(x[0], x[1], a),
    "MATMUL": lambda x, a: x[0] @ x[1],
    "SOFTMAX": lambda x, a: x[0].softmax(a["axis"]),
    "LOG_SOFTMAX": lambda x, a: x[0].log_softmax(a["axis"]),
    "LAYER_NORM": lambda x, a: functional.layer_norm(x[0], x[1].shape, x[1], x[2], 1e-5),
    "RMS_NORM": lambda x, a: functional.rms_norm(x[0], x[1].shape, x[1], 1e-5),
    "GROUP_NORM": lambda x, a: functional.group_norm(x[0], a["num_groups"], x[1], x[2], 1e-5),
    "CONV2D": _conv,
    "MAX_POOL": lambda x, a: _pool(functional.max_pool2d, x[0], a),
    "AVG_POOL": lambda x, a: _pool(_avg_pool, x[0], a),
    "RESIZE": lambda x, a: _resize(x[0], a),
}
