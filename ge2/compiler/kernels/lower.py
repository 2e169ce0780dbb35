"""From graph nodes to kernel-level problems: few operator types on strided operands."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ... import config
from ...contract import DTYPES
from ...errors import StrideMismatch, Unsupported
from ...problem import Problem, TensorSpec
from .. import opdefs
from ..ir.expr import Expr, ExprBundle, cast, input, substitute
from ..ir.nodes import Node, TensorType
from ..opdefs.elementwise import formulas
from ..opdefs.gemm_epilogue import epilogue_of
from ..opdefs.layout import axis_pads
from ..opdefs.scaled_matmul import scaled_epilogue
from ..opdefs.shapes import spatial, window_pads
from .lower_attention import (
    lower_attention,
    lower_attention_grad,
    lower_paged_attention,
)
from .lower_row import lower_row
from .lower_scan import lower_scan
from .strides import collapse, expand

Specs = Sequence[TensorSpec | None]
Ints = tuple[int, ...]

_STRIDED = {"ELEMENTWISE": True, "GEMM_BIAS_ACT": True, "NORM_GEMM": True, "MATMUL_NBITS": True,
            "ROW": True, "CONCAT": True, "SCAN": True, "ATTENTION": True,
            "ATTENTION_GRAD": True, "PAGED_ATTENTION": True, "GATHER": True,
            "RESAMPLE": False, "PAD": True, "CONV2D": False, "POOL2D": False}


def accepts_strides(op_type: str) -> bool:
    """Return whether kernels of this type read strided operands in place."""
    return _STRIDED.get(op_type, False)


def lower(node: Node, specs: Mapping[str, TensorSpec]) -> Problem:
    """Return the kernel-level problem of a concrete node.

    Args:
        node: its attributes hold no symbolic extents.
        specs: the operands' specs by value name; an output that is missing is dense.

    Raises:
        StrideMismatch: an operand needs a dense copy first.
        Unsupported: no kernel-level operator serves this one.
    """
    definition = opdefs.get(node.op)
    attrs = opdefs.full_attrs(node.op, node.attrs)
    inputs = [specs[v] if v else None for v in node.inputs]
    types = [None if s is None else TensorType(s.dtype, s.shape) for s in inputs]
    outputs = [specs.get(name) or TensorSpec.dense(kind.dtype, _ints(kind.shape))
               for name, kind in zip(node.outputs, opdefs.infer(node.op, types, node.attrs),
                                     strict=False)]
    rule = _RULES.get(node.op) or _FAMILIES.get(definition.family)
    if rule is None:
        raise Unsupported(f"{node.op} has no kernel", argument=node.name)
    return rule(node.op, attrs, inputs, outputs)


def _ints(extents: Any) -> Ints:
    return tuple(extents)


def _problem(op_type: str, inputs: Specs, outputs: Sequence[TensorSpec],
             attrs: Mapping[str, Hashable]) -> Problem:
    return Problem(op_type, tuple(inputs), tuple(outputs), tuple(sorted(attrs.items())))


def _present(inputs: Specs) -> list[TensorSpec]:
    return [spec for spec in inputs if spec is not None]


# NOTE: an output's formula must have the compute dtype of what is stored, so that the kernel's
# from_compute is the only conversion.
def _stored(result: Expr, dtype: str) -> Expr:
    compute = DTYPES[dtype].compute
    return result if result.dtype == compute else cast(result, compute)


@lru_cache(maxsize=4096)
def _bundle(results: tuple[Expr, ...], dtypes: tuple[str, ...]) -> ExprBundle:
    return ExprBundle(tuple(_stored(r, d) for r, d in zip(results, dtypes, strict=True)))


def _elementwise(op: str, attrs: dict[str, Any], inputs: Specs,
                 outputs: Sequence[TensorSpec]) -> Problem:
    given = _present(inputs)
    results = formulas(opdefs.get(op), attrs, [s.dtype for s in given])
    bundle = _bundle(tuple(results), tuple(s.dtype for s in outputs))
    shape = outputs[0].shape
    return _problem("ELEMENTWISE", [expand(s, shape) for s in given], outputs, {"expr": bundle})


def _copy(op: str, attrs: dict[str, Any], inputs: Specs,
          outputs: Sequence[TensorSpec]) -> Problem:
    """A view operator that is asked to be a kernel: only where the shape stays the same."""
    x = _present(inputs)[0]
    if op not in ("RESHAPE", "FLATTEN", "SQUEEZE", "UNSQUEEZE"):
        from .views import View, view

        made = view(Node(op, op, ("x",), ("y",), attrs), View(x))
        if made is not None and made.offset == 0:
            return _identity(made.spec, outputs)
    raise StrideMismatch(f"{op} of a strided tensor needs a dense copy first", found=x.strides)


def _identity(x: TensorSpec, outputs: Sequence[TensorSpec]) -> Problem:
    bundle = ExprBundle((input(0, DTYPES[x.dtype].compute),))
    return _problem("ELEMENTWISE", [x], outputs, {"expr": bundle})


def _matmul(op: str, attrs: dict[str, Any], inputs: Specs,
            outputs: Sequence[TensorSpec]) -> Problem:
    full = opdefs.full_attrs("GEMM_BIAS_ACT", {})
    return _gemm("GEMM_BIAS_ACT", full, [*inputs, None, None], outputs)


def _gemm(op: str, attrs: dict[str, Any], inputs: Specs,
          outputs: Sequence[TensorSpec]) -> Problem:
    y = outputs[0]
    a, b = inputs[0], inputs[1]
    assert a is not None and b is not None
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise Unsupported("a vector operand must be reshaped to a matrix", found=(a, b))
    attrs = dict(attrs)
    batch = y.shape[:-2]
    a, attrs["trans_a"] = _operand(expand(a, (*batch, *a.shape[-2:])), attrs["trans_a"])
    b, attrs["trans_b"] = _operand(expand(b, (*batch, *b.shape[-2:])), attrs["trans_b"])
    rest = [None if s is None else expand(s, y.shape) for s in inputs[2:]]
    rest += [None] * (2 - len(rest))
    dtypes = [None if s is None else s.dtype for s in rest[:2]]
    attrs["epilogue"] = epilogue_of(y.dtype, dtypes, attrs)
    if a.dtype != "f32" or y.dtype != "f32":
        attrs["f32"] = "ieee"
    elif attrs["f32"] == "default":
        attrs["f32"] = config.get("GE2_F32")
    return _problem("GEMM_BIAS_ACT", [a, b, *rest], outputs, attrs)


def _scaled_matmul(op: str, attrs: dict[str, Any], inputs: Specs,
                   outputs: Sequence[TensorSpec]) -> Problem:
    """A product whose scales are epilogue inputs: those that are there, one after another."""
    y, a = outputs[0], inputs[0]
    assert a is not None
    rest = inputs[2:]
    epilogue = attrs["epilogue"]
    if epilogue is None:
        epilogue = scaled_epilogue(a.dtype, y.dtype, [None if s is None else s.dtype for s in rest])
    present = [i for i, s in enumerate(rest, start=1) if s is not None]
    moved = _renumbered(epilogue, (0, *present))
    full = opdefs.full_attrs("GEMM_BIAS_ACT", {"epilogue": moved})
    made = _gemm("GEMM_BIAS_ACT", full, [*inputs[:2], *_present(rest)], outputs)
    return replace(made, inputs=made.inputs[:2 + len(present)])


@lru_cache(maxsize=1024)
def _renumbered(bundle: ExprBundle, kept: Ints) -> ExprBundle:
    """Return the bundle with only the inputs that are kept."""
    dtypes = dict(enumerate(bundle.input_dtypes))
    table = {old: input(new, dtype) for new, old in enumerate(kept)
             if (dtype := dtypes.get(old)) is not None}
    return ExprBundle(tuple(substitute(bundle.outputs, table)))


def _norm_gemm(op: str, attrs: dict[str, Any], inputs: Specs,
               outputs: Sequence[TensorSpec]) -> Problem:
    """Leading axes become one: a block holds whole rows, whichever they are."""
    x, scale, b, shift = (*inputs, None)[:4]
    rest = [*inputs[4:], *[None] * (6 - max(len(inputs), 4))]
    assert x is not None and scale is not None and b is not None
    y = outputs[0]
    b, trans_b = _operand(b, attrs["trans_b"])
    parameters = [None if s is None else _vector(s, x.shape[-1]) for s in (scale, shift)]
    extras = [None if s is None else _matrix_rows(expand(s, y.shape)) for s in rest]
    dtypes = [None if s is None else s.dtype for s in rest[:2]]
    kept = {name: attrs[name] for name in ("norm", "epsilon", "alpha", "beta", "act",
                                           "leaky_slope")}
    return _problem("NORM_GEMM", [_matrix_rows(x), parameters[0], b, parameters[1], *extras],
                    [_matrix_rows(s) for s in outputs],
                    {**kept, "trans_b": trans_b, "epilogue": epilogue_of(y.dtype, dtypes, attrs)})


def _vector(spec: TensorSpec, extent: int) -> TensorSpec:
    """Return what is one value per column, whatever axes of 1 stand before, as a vector."""
    last = replace(spec, shape=spec.shape[-1:], strides=spec.strides[-1:])
    return expand(last, (extent,))


def _matrix_rows(spec: TensorSpec) -> TensorSpec:
    """Return a tensor with its leading axes as one.

    Raises:
        StrideMismatch: they do not count through memory evenly.
    """
    if len(spec.shape) < 3:
        return spec
    rows, (steps,) = collapse(spec.shape[:-1], [spec.strides[:-1]])
    if len(rows) > 1:
        raise StrideMismatch("rows do not count through memory evenly", found=spec.strides)
    return replace(spec, shape=(*rows, spec.shape[-1]), strides=(*steps, spec.strides[-1]))


def _nbits(op: str, attrs: dict[str, Any], inputs: Specs,
           outputs: Sequence[TensorSpec]) -> Problem:
    """Scales and zero points as matrices, the bias as wide as the output."""
    a, b, scales, zeros, bias = (*inputs, None, None)[:5]
    y = outputs[0]
    assert b is not None and scales is not None
    n, blocks = b.shape[:2]
    kept = {name: attrs[name] for name in ("block_size", "act", "leaky_slope")}
    return _problem("MATMUL_NBITS", [
        a, b, _rows(scales, (n, blocks)), zeros and _rows(zeros, (n, (blocks + 1) // 2)),
        bias and expand(bias, y.shape)], outputs, kept)


def _rows(spec: TensorSpec, shape: Ints) -> TensorSpec:
    """Return a tensor, flat or not, as a matrix."""
    if len(spec.shape) == 2:
        return spec
    if not spec.is_dense:
        raise StrideMismatch("a flat matrix with gaps needs a dense copy first",
                             found=spec.strides)
    return TensorSpec.dense(spec.dtype, shape, spec.align)


def _operand(spec: TensorSpec, transposed: bool) -> tuple[TensorSpec, bool]:
    """Return a matrix with stride 1 along its last axis where a swap of axes gives that."""
    rows, columns = spec.strides[-2:]
    if columns != 1 and spec.shape[-1] != 1 and (rows == 1 or spec.shape[-2] == 1):
        swapped = replace(spec, shape=(*spec.shape[:-2], spec.shape[-1], spec.shape[-2]),
                          strides=(*spec.strides[:-2], columns, rows))
        return swapped, not transposed
    return spec, transposed


def _concat(op: str, attrs: dict[str, Any], inputs: Specs,
            outputs: Sequence[TensorSpec]) -> Problem:
    return _problem("CONCAT", inputs, outputs, {"axis": attrs["axis"] % len(outputs[0].shape)})


def _gather(op: str, attrs: dict[str, Any], inputs: Specs,
            outputs: Sequence[TensorSpec]) -> Problem:
    x = inputs[0]
    assert x is not None
    return _problem("GATHER", inputs, outputs, {"axis": attrs["axis"] % len(x.shape)})


def _pad(op: str, attrs: dict[str, Any], inputs: Specs,
         outputs: Sequence[TensorSpec]) -> Problem:
    x = inputs[0]
    assert x is not None
    pairs = axis_pads(len(x.shape), attrs)
    pads = (*(low for low, _ in pairs), *(high for _, high in pairs))
    return _problem("PAD", [x], outputs, {
        "pads": pads, "mode": attrs["mode"], "value": attrs["value"]})


def _resample(op: str, attrs: dict[str, Any], inputs: Specs,
              outputs: Sequence[TensorSpec]) -> Problem:
    x = inputs[0]
    assert x is not None
    axes = tuple(axis % len(x.shape) for axis in attrs["axes"])
    return _problem("RESAMPLE", inputs, outputs, {"axes": axes})


def _window(op: str, attrs: dict[str, Any], sizes: Ints, kernel: Ints) -> dict[str, Hashable]:
    """Return strides, dilations and pads (begins, then ends) with nothing left to default."""
    n = len(sizes)
    strides = spatial(op, attrs, "strides", n, 1)
    dilations = spatial(op, attrs, "dilations", n, 1)
    pads = window_pads(attrs, sizes, kernel, strides, dilations)
    flat = (*(low for low, _ in pads), *(high for _, high in pads))
    return {"strides": strides, "dilations": dilations, "pads": flat}


def _conv(op: str, attrs: dict[str, Any], inputs: Specs,
          outputs: Sequence[TensorSpec]) -> Problem:
    x, w = inputs[0], inputs[1]
    assert x is not None and w is not None
    window = _window(op, attrs, x.shape[2:], w.shape[2:])
    kept = {key: value for key, value in attrs.items() if key != "auto_pad"}
    padded = [*inputs, *[None] * (3 - len(inputs))]
    return _problem(op, padded, outputs, {**kept, **window})


def _pool(op: str, attrs: dict[str, Any], inputs: Specs,
          outputs: Sequence[TensorSpec]) -> Problem:
    x = inputs[0]
    assert x is not None
    kernel = attrs["kernel_shape"]
    n = len(kernel)
    return _problem(f"POOL{n}D", inputs, outputs, {
        "kind": "max" if op == "MAX_POOL" else "avg", "kernel_shape": kernel,
        "count_include_pad": attrs.get("count_include_pad", False),
        **_window(op, attrs, x.shape[2:], kernel)})


Rule = Callable[[str, dict[str, Any], Specs, Sequence[TensorSpec]], Problem]

_RULES: dict[str, Rule] = {
    "MATMUL": _matmul,
    "GEMM_BIAS_ACT": _gemm,
    "SCALED_MATMUL": _scaled_matmul,
    "NORM_GEMM": _norm_gemm,
    "MATMUL_NBITS": _nbits,
    "CONCAT": _concat,
    "GATHER": _gather,
    "PAD": _pad,
    "RESAMPLE": _resample,
    "CONV2D": _conv,
    "MAX_POOL": _pool,
    "AVG_POOL": _pool,
    **dict.fromkeys(("RESHAPE", "FLATTEN", "SQUEEZE", "UNSQUEEZE", "TRANSPOSE", "EXPAND"), _copy),
}
_FAMILIES: dict[str, Rule] = {"elementwise": _elementwise, "row": lower_row, "scan": lower_scan,
                              "attention": lower_attention,
                              "attention_grad": lower_attention_grad,
                              "paged_attention": lower_paged_attention}
