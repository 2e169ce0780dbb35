"""From graph nodes to kernel-level problems: few operator types on strided operands."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...contract import DTYPES
from ...errors import StrideMismatch, Unsupported
from ...problem import Problem, TensorSpec
from .. import opdefs
from ..ir.expr import Expr, ExprBundle, cast, input
from ..ir.nodes import Node, TensorType
from ..opdefs.elementwise import formulas
from ..opdefs.layout import axis_pads
from ..opdefs.shapes import spatial, window_pads
from .lower_attention import (
    lower_attention,
    lower_attention_grad,
    lower_paged_attention,
)
from .lower_product import (
    lower_gemm,
    lower_matmul,
    lower_nbits,
    lower_norm_gemm,
    lower_scaled_matmul,
)
from .lower_row import lower_row
from .lower_scan import lower_scan
from .strides import expand

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
    return Problem.of("ELEMENTWISE", [expand(s, shape) for s in given], outputs, {"expr": bundle})


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
    return Problem.of("ELEMENTWISE", [x], outputs, {"expr": bundle})


def _concat(op: str, attrs: dict[str, Any], inputs: Specs,
            outputs: Sequence[TensorSpec]) -> Problem:
    return Problem.of("CONCAT", inputs, outputs, {"axis": attrs["axis"] % len(outputs[0].shape)})


def _gather(op: str, attrs: dict[str, Any], inputs: Specs,
            outputs: Sequence[TensorSpec]) -> Problem:
    x = inputs[0]
    assert x is not None
    return Problem.of("GATHER", inputs, outputs, {"axis": attrs["axis"] % len(x.shape)})


def _pad(op: str, attrs: dict[str, Any], inputs: Specs,
         outputs: Sequence[TensorSpec]) -> Problem:
    x = inputs[0]
    assert x is not None
    pairs = axis_pads(len(x.shape), attrs)
    pads = (*(low for low, _ in pairs), *(high for _, high in pairs))
    return Problem.of("PAD", [x], outputs, {
        "pads": pads, "mode": attrs["mode"], "value": attrs["value"]})


def _resample(op: str, attrs: dict[str, Any], inputs: Specs,
              outputs: Sequence[TensorSpec]) -> Problem:
    x = inputs[0]
    assert x is not None
    axes = tuple(axis % len(x.shape) for axis in attrs["axes"])
    return Problem.of("RESAMPLE", inputs, outputs, {"axes": axes})


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
    return Problem.of(op, padded, outputs, {**kept, **window})


def _pool(op: str, attrs: dict[str, Any], inputs: Specs,
          outputs: Sequence[TensorSpec]) -> Problem:
    x = inputs[0]
    assert x is not None
    kernel = attrs["kernel_shape"]
    n = len(kernel)
    return Problem.of(f"POOL{n}D", inputs, outputs, {
        "kind": "max" if op == "MAX_POOL" else "avg", "kernel_shape": kernel,
        "count_include_pad": attrs.get("count_include_pad", False),
        **_window(op, attrs, x.shape[2:], kernel)})


Rule = Callable[[str, dict[str, Any], Specs, Sequence[TensorSpec]], Problem]

_RULES: dict[str, Rule] = {
    "MATMUL": lower_matmul,
    "GEMM_BIAS_ACT": lower_gemm,
    "SCALED_MATMUL": lower_scaled_matmul,
    "NORM_GEMM": lower_norm_gemm,
    "MATMUL_NBITS": lower_nbits,
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
