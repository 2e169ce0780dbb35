"""ATen operators that make, move or pick elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...contract import numpy_dtype
from ..node_writer import Unmapped
from .call import Call, Tensor

RULES: dict[str, Callable[[Call], Any]] = {}


def _maps(*names: str) -> Callable[[Callable[[Call], Any]], Callable[[Call], Any]]:
    def register(rule: Callable[[Call], Any]) -> Callable[[Call], Any]:
        for name in names:
            RULES[name] = rule
        return rule

    return register


@_maps("view", "reshape", "_unsafe_view", "flatten", "unsqueeze", "unflatten")
def _view(call: Call) -> str:
    """The result's shape is known: nothing else matters."""
    return call.make("RESHAPE", call.value("self"), shape=call.shape, allowzero=True)


@_maps("squeeze")
def _squeeze(call: Call) -> str:
    return _view(call)  # type: ignore[no-any-return]


@_maps("permute", "transpose", "t")
def _transpose(call: Call) -> str:
    rank = call.type("self").rank
    order = list(range(rank))
    if call.op == "permute":
        order = [axis % rank for axis in call["dims"]]
    elif rank > 1:
        a, b = (call["dim0"], call["dim1"]) if call.op == "transpose" else (0, 1)
        order[a], order[b] = order[b], order[a]
    return call.make("TRANSPOSE", call.value("self"), perm=order)


@_maps("expand", "expand_as", "broadcast_to")
def _expand(call: Call) -> str:
    return call.make("EXPAND", call.value("self"), shape=call.shape)


@_maps("cat")
def _cat(call: Call) -> str:
    tensors = [call.as_value(t, call.dtype) for t in call["tensors"]]
    return call.make("CONCAT", *tensors, axis=call["dim"])


@_maps("stack")
def _stack(call: Call) -> str:
    axis = call["dim"] % len(call.shape)
    tensors = [call.make("UNSQUEEZE", call.as_value(t, call.dtype), axes=(axis,))
               for t in call["tensors"]]
    return call.make("CONCAT", *tensors, axis=axis)


@_maps("slice", "narrow")
def _slice(call: Call) -> str:
    start, end = call["start"] or 0, call["end"]
    if call.op == "narrow":
        end = start + call["length"]
    return call.make("SLICE", call.value("self"), starts=(start,), axes=(call["dim"],),
                     ends=(2**62 if end is None else end,), steps=(call["step"] or 1,))


@_maps("select")
def _select(call: Call) -> str:
    axis, index = call["dim"], call["index"]
    if isinstance(index, int) and index < 0:
        index = call.type("self").shape[axis] + index
    piece = call.make("SLICE", call.value("self"), starts=(index,), ends=(index + 1,),
                      axes=(axis,))
    return call.make("RESHAPE", piece, shape=call.shape, allowzero=True)


@_maps("split", "split_with_sizes", "chunk", "unbind")
def _split(call: Call) -> Any:
    axis = call["dim"]
    kind = call.type("self")
    size = kind.shape[axis]
    sizes = call["split_sizes"] or call["split_size"]
    if call.op in ("chunk", "unbind"):
        if not isinstance(size, int):
            raise Unmapped("pieces of a symbolic axis")
        sizes = 1 if call.op == "unbind" else -(-size // call["chunks"])
    if not isinstance(sizes, list):
        if not isinstance(size, int):
            raise Unmapped("pieces of a symbolic axis")
        sizes = [min(sizes, size - start) for start in range(0, size, sizes)]
    pieces = call.writer.multi("SPLIT", len(sizes), call.value("self"), axis=axis, split=sizes)
    if call.op != "unbind":
        return pieces
    return tuple(call.make("RESHAPE", p, shape=call.shape, allowzero=True) for p in pieces)


@_maps("index_select")
def _index_select(call: Call) -> str:
    return call.make("GATHER", call.value("self"), call.value("index"), axis=call["dim"])


@_maps("gather")
def _gather(call: Call) -> str:
    return call.make("GATHER_ELEMENTS", call.value("self"), call.value("index"), axis=call["dim"])


@_maps("index")
def _index(call: Call) -> str:
    """x[i] and x[:, i] are slices picked; x[i, j, ...] on leading axes picks by tuples."""
    indices = call["indices"]
    given = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    if any(call.writer.type(i.name).dtype == "bool" for _, i in given):
        raise Unmapped("boolean indices")
    if len(given) == 1:
        (axis, index), = given
        return call.make("GATHER", call.value("self"), index.name, axis=axis)
    if [axis for axis, _ in given] != list(range(len(given))):
        raise Unmapped("several indices that leave out a leading axis")
    rank = len(call.shape) - (call.type("self").rank - len(given))
    shape = (*call.shape[:rank], 1)
    columns = []
    for _, index in given:
        wide = call.make("EXPAND", index.name, shape=shape[:-1])
        columns.append(call.make("RESHAPE", wide, shape=shape, allowzero=True))
    return call.make("GATHER_ND", call.value("self"), call.make("CONCAT", *columns, axis=-1))


@_maps("repeat")
def _repeat(call: Call) -> str:
    repeats = call["repeats"]
    if not all(isinstance(r, int) for r in repeats):
        raise Unmapped("a symbolic number of repeats")
    x, rank = call.value("self"), call.type("self").rank
    if len(repeats) > rank:
        x = call.make("UNSQUEEZE", x, axes=tuple(range(len(repeats) - rank)))
    return call.make("TILE", x, repeats=repeats)


@_maps("flip")
def _flip(call: Call) -> str:
    return call.make("FLIP", call.value("self"), axes=call["dims"])


@_maps("constant_pad_nd", "pad")
def _pad(call: Call) -> str:
    if call["mode"] not in (None, "constant", "reflect", "replicate"):
        raise Unmapped(f"padding {call['mode']}")
    pads, n = call["pad"], len(call["pad"]) // 2
    # torch counts pairs from the last axis.
    axes = [-1 - i for i in range(n)]
    modes = {"replicate": "edge", None: "constant"}
    return call.make("PAD", call.value("self"), axes=axes, value=float(call["value"] or 0),
                     pads=[*pads[0::2], *pads[1::2]], mode=modes.get(call["mode"], call["mode"]))


@_maps("tril", "triu")
def _triangle(call: Call) -> str:
    return call.make("TRILU", call.value("self"), upper=call.op == "triu", k=call["diagonal"])


@_maps("pixel_shuffle")
def _pixel_shuffle(call: Call) -> str:
    return call.make("DEPTH_TO_SPACE", call.value("self"), blocksize=call["upscale_factor"],
                     mode="CRD")


@_maps("arange")
def _arange(call: Call) -> str:
    return call.make("RANGE", start=call["start"] or 0, limit=call["end"],
                     delta=call["step"] or 1, dtype=call.dtype)


@_maps("full", "zeros", "ones", "full_like", "zeros_like", "ones_like", "new_full", "new_zeros",
       "new_ones", "scalar_tensor", "empty")
def _filled(call: Call) -> str:
    number = call["fill_value"] if "fill_value" in call.args else call["s"]
    if number is None:
        number = 1 if "ones" in call.op else 0
    if isinstance(number, Tensor):
        raise Unmapped("filling with a tensor")
    value = call.writer.constant(np.asarray(number, numpy_dtype(call.dtype)))
    return call.make("EXPAND", value, shape=call.shape) if call.shape else (
        call.make("IDENTITY", value))
