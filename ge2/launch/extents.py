"""Problems in sizes that a user names: how each operator's shapes follow from a few extents.

An operator is a function of an example problem and of the extents, which are named as its
parameters are. It returns the shapes of the inputs by their names in the operator's schema and
those of the outputs in order; inputs that it leaves out keep theirs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import Invalid, ShapeMismatch
from ..problem import Problem, TensorSpec, dense_strides
from .check import check_problem, window_extents
from .check_lab import WINDOW_SLACK
from .schemas import kernel_op

Shape = tuple[int, ...]
Shapes = tuple[Mapping[str, Shape], Sequence[Shape]]


def check_extents(op_type: str, extents: Sequence[int]) -> None:
    """Refuse another number of extents than an operator's sizes are told by.

    Raises:
        Invalid: names them.
    """
    names = extent_names(op_type)
    if len(extents) != len(names) and not names[-1].startswith("*"):
        raise Invalid(f"{op_type} takes {len(names)} extents", argument="shape",
                      found=",".join(map(str, extents)), wanted=",".join(names))


def with_extents(example: Problem, extents: Sequence[int]) -> Problem:
    """Return an example in another size, with its attributes, absent inputs and orders of axes.

    Tensors are dense, axes that the example expands by stride 0 excepted.

    Args:
        example: a valid problem.
        extents: such as check_extents() lets through.

    Raises:
        ShapeMismatch, Invalid: this example cannot have this size.
    """
    inputs, outputs = _SHAPES[example.op_type](example, *extents)
    op = kernel_op(example.op_type)
    given = [spec and _resized(spec, _named(inputs, op.input_name(slot), spec.shape))
             for slot, spec in enumerate(example.inputs)]
    made = [_resized(spec, shape) for spec, shape in zip(example.outputs, outputs, strict=True)]
    problem = replace(example, inputs=tuple(given), outputs=tuple(made))
    check_problem(problem)
    return problem


def extent_names(op_type: str) -> tuple[str, ...]:
    """Return the extents that an operator's sizes are told by; "*X" stands for all of a tensor."""
    _, *parameters = inspect.signature(_SHAPES[op_type]).parameters.values()
    return tuple(("*" if p.kind is p.VAR_POSITIONAL else "") + p.name.upper() for p in parameters)


def _named(shapes: Mapping[str, Shape], name: str, default: Shape) -> Shape:
    """Return the shape of a repeated input by its number, else by the name of all."""
    return shapes.get(name, shapes.get(name.partition("[")[0], default))


def _resized(spec: TensorSpec, shape: Shape) -> TensorSpec:
    """Return a tensor of another shape whose axes lie in memory in the same order."""
    if len(shape) != len(spec.shape):
        return TensorSpec.dense(spec.dtype, shape, spec.align)
    order = sorted((axis for axis, stride in enumerate(spec.strides) if stride),
                   key=lambda axis: -abs(spec.strides[axis]))
    packed = dict(zip(order, dense_strides(tuple(shape[axis] for axis in order)), strict=True))
    return TensorSpec(spec.dtype, shape, tuple(packed.get(axis, 0) for axis in range(len(shape))),
                      spec.align)


def _shape(problem: Problem, name: str) -> Shape:
    """Return the shape of an input that is there."""
    op = kernel_op(problem.op_type)
    slot = [input_.rstrip("?*") for input_ in op.inputs].index(name)
    spec = problem.inputs[slot]
    assert spec is not None, name
    return spec.shape


def _same_rank(given: Shape, wanted: Shape, name: str) -> None:
    if len(given) != len(wanted):
        raise ShapeMismatch(f"the example has another rank of {name}", argument="shape",
                            found=given, wanted=f"{len(wanted)} extents")


def _share(whole: int, parts: int, name: str) -> int:
    if whole % parts:
        raise ShapeMismatch(f"{parts} groups do not divide {name}", argument="shape", found=whole,
                            wanted=f"a multiple of {parts}")
    return whole // parts


def _elementwise(p: Problem, *y: int) -> Shapes:
    return _all_inputs(p, lambda shape: y), [y] * len(p.outputs)


def _product(p: Problem, m: int, n: int, k: int) -> Shapes:
    attrs, batch = p.attr_map, p.outputs[0].shape[:-2]
    y = (*batch, m, n)
    outputs = [y] * len(p.outputs)
    if attrs.get("rows", "none") != "none":
        outputs[-1] = (*batch, m, 1)
    return {"A": (*batch, *((k, m) if attrs["trans_a"] else (m, k))),
            "B": (*batch, *((n, k) if attrs["trans_b"] else (k, n))),
            **dict.fromkeys(("bias", "C", "extras"), y)}, outputs


def _norm_product(p: Problem, m: int, n: int, k: int) -> Shapes:
    return {"x": (m, k), **dict.fromkeys(("scale", "shift"), (k,)),
            "B": (n, k) if p.attr_map["trans_b"] else (k, n),
            **dict.fromkeys(("bias", "C", "extras"), (m, n))}, [(m, n), (m, k)][:len(p.outputs)]


def _nbits(p: Problem, m: int, n: int, k: int) -> Shapes:
    size: Any = p.attr_map["block_size"]
    blocks = -(-k // size)
    return {"A": (m, k), "B": (n, blocks, size // 2), "scales": (n, blocks),
            "zero_points": (n, (blocks + 1) // 2), "bias": (m, n)}, [(m, n)]


def _rows(p: Problem, rows: int, n: int) -> Shapes:
    """Operators on rows: other tensors are like x, one row for all, or one value per row."""
    old = p.inputs[0].shape if p.inputs[0] else ()
    x = (*[1] * (len(old) - 2), rows, n) if len(old) > 1 else (n,)
    return _all_inputs(p, lambda shape: x[len(x) - len(shape):]), [
        x[:len(y.shape)] for y in p.outputs]


def _product_rows(p: Problem, m: int, n: int, k: int) -> Shapes:
    y = (m, n)
    return {**_all_inputs(p, lambda shape: y[2 - len(shape):]), "A": (m, k), "B": (n, k)}, [
        y[:len(spec.shape)] for spec in p.outputs]


def _window_sums(p: Problem, n: int, k: int) -> Shapes:
    return {"x": (n + WINDOW_SLACK,), "weights": (k,)}, [(n,)]


def _all_inputs(p: Problem, shape_of: Callable[[Shape], Shape]) -> dict[str, Shape]:
    op = kernel_op(p.op_type)
    return {op.input_name(slot): shape_of(spec.shape) for slot, spec in enumerate(p.inputs) if spec}


def _concat(p: Problem, *y: int) -> Shapes:
    """The first input gives or takes what is left of the joined axis."""
    axis: Any = p.attr_map["axis"]
    _same_rank(y, p.outputs[0].shape, "y")
    rest = sum(spec.shape[axis] for spec in p.inputs[1:] if spec)
    joined = _all_inputs(p, lambda shape: (*y[:axis], shape[axis], *y[axis + 1:]))
    if y[axis] < rest:
        raise ShapeMismatch("the example's other inputs are longer", argument="shape", found=y,
                            wanted=f"at least {rest} along axis {axis}")
    return {**joined, "xs[0]": (*y[:axis], y[axis] - rest, *y[axis + 1:])}, [y]


def _gather(p: Problem, outer: int, extent: int, inner: int, count: int) -> Shapes:
    """Axes before and behind the picked one are one axis each, or none where the example has none.
    """
    axis: Any = p.attr_map["axis"]
    before, behind = [outer][:axis], [inner][:len(_shape(p, "x")) - axis - 1]
    if axis > 1 or (outer, inner) != (*(before or [1]), *(behind or [1])):
        raise ShapeMismatch("the example has no axes there", argument="shape", found=(outer, inner),
                            wanted="1 element before and behind the picked axis")
    return {"x": (*before, extent, *behind), "indices": (count,)}, [(*before, count, *behind)]


def _pad(p: Problem, *x: int) -> Shapes:
    pads: Any = p.attr_map["pads"]
    rank = len(_shape(p, "x"))
    _same_rank(x, _shape(p, "x"), "x")
    return {"x": x}, [tuple(n + pads[i] + pads[rank + i] for i, n in enumerate(x))]


def _resample(p: Problem, *x: int) -> Shapes:
    """The example's tables stay: the resampled axes keep their results' extents."""
    axes: Any = p.attr_map["axes"]
    _same_rank(x, _shape(p, "x"), "x")
    return {"x": x}, [tuple(y if axis in axes else n
                            for axis, (n, y) in enumerate(zip(x, p.outputs[0].shape, strict=True)))]


def _conv(p: Problem, batch: int, channels: int, height: int, width: int, filters: int) -> Shapes:
    group: Any = p.attr_map["group"]
    window = _shape(p, "w")[2:]
    x = batch, channels, height, width
    y = batch, filters, *window_extents(p, x, window)
    return {"x": x, "w": (filters, _share(channels, group, "the channels"), *window),
            "bias": (filters,), "residual": y}, [y]


def _pool(p: Problem, batch: int, channels: int, height: int, width: int) -> Shapes:
    kernel: Any = p.attr_map["kernel_shape"]
    x = batch, channels, height, width
    return {"x": x}, [(batch, channels, *window_extents(p, x, kernel))]


def _attention(p: Problem, batch: int, heads: int, queries: int, keys: int, size: int) -> Shapes:
    """Heads that share keys, and a value size of its own, are the example's."""
    q, k, v = (_shape(p, name) for name in ("q", "k", "v"))
    groups = _share(heads, _share(q[1], k[1], "the heads"), "the heads")
    value = size if v[3] == q[3] else v[3]
    qs, ks, vs = ((batch, heads, queries, size), (batch, groups, keys, size),
                  (batch, groups, keys, value))
    y = batch, heads, queries, value
    if p.op_type == "ATTENTION_GRAD":
        return {"q": qs, "k": ks, "v": vs, "y": y, "grad_y": y, "lse": y[:3],
                "mask": (*y[:3], keys), "kv_len": (batch,)}, [qs, ks, vs]
    packed = len(p.inputs) > 5 and p.inputs[5]
    sequences = packed.shape[0] - 1 if packed else batch
    scores = sequences, heads, queries, keys
    return {"q": qs, "k": ks, "v": vs, "mask": scores, "extras": scores, "kv_len": (sequences,)}, [
        y, y[:3]][:len(p.outputs)]


def _paged(p: Problem, batch: int, heads: int, queries: int, pages: int, size: int) -> Shapes:
    """Each sample has so many pages of the example's keys each."""
    q, k, v = (_shape(p, name) for name in ("q", "k", "v"))
    groups = _share(heads, _share(q[1], k[1], "the heads"), "the heads")
    value = size if v[3] == q[3] else v[3]
    y = batch, heads, queries, value
    held = batch * pages, groups, k[2]
    return {"q": (*y[:3], size), "k": (*held, size), "v": (*held, value), "kv_len": (batch,),
            "block_table": (batch, pages), "mask": (*y[:3], pages * k[2])}, [
        y, y[:3]][:len(p.outputs)]


_SHAPES: dict[str, Callable[..., Shapes]] = {
    **dict.fromkeys(("ELEMENTWISE", "LAB_NORMALIZE_SUM"), _elementwise),
    "GEMM_BIAS_ACT": _product,
    "NORM_GEMM": _norm_product,
    "MATMUL_NBITS": _nbits,
    **dict.fromkeys(("ROW", "SCAN", "LAB_REDUCE", "LAB_STREAM", "LAB_REMAT", "LAB_FUSE",
                     "LAB_COMPOSE_ROWS"), _rows),
    "LAB_COMPOSE_PRODUCT": _product_rows,
    "LAB_STAGE": _window_sums,
    "CONCAT": _concat,
    "GATHER": _gather,
    "PAD": _pad,
    "RESAMPLE": _resample,
    "CONV2D": _conv,
    "POOL2D": _pool,
    **dict.fromkeys(("ATTENTION", "ATTENTION_GRAD"), _attention),
    "PAGED_ATTENTION": _paged,
}
