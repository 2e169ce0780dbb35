"""Products as problems: operands read in place, scales and norms as what kernels know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...errors import StrideMismatch, Unsupported
from ...problem import Problem, TensorSpec
from .. import opdefs
from ..ir.expr import ExprBundle, input, substitute
from ..opdefs.gemm import f32_mode
from ..opdefs.gemm_epilogue import epilogue_of
from ..opdefs.scaled_matmul import scaled_epilogue
from .strides import collapse, expand

Ints = tuple[int, ...]
Specs = Sequence[TensorSpec | None]


def lower_matmul(op: str, attrs: dict[str, Any], inputs: Specs,
                 outputs: Sequence[TensorSpec]) -> Problem:
    """A plain product of stacks of matrices."""
    full = opdefs.full_attrs("GEMM_BIAS_ACT", {})
    return lower_gemm("GEMM_BIAS_ACT", full, [*inputs, None, None], outputs)


def lower_gemm(op: str, attrs: dict[str, Any], inputs: Specs,
               outputs: Sequence[TensorSpec]) -> Problem:
    """A product with its epilogue; operands are read in place, whichever way they lie.

    Raises:
        Unsupported: an operand is a vector. StrideMismatch: one does not broadcast.
    """
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
    else:
        attrs["f32"] = f32_mode(attrs)
    return Problem.of("GEMM_BIAS_ACT", [a, b, *rest], outputs, attrs)


def lower_scaled_matmul(op: str, attrs: dict[str, Any], inputs: Specs,
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
    scales = [s for s in rest if s is not None]
    made = lower_gemm("GEMM_BIAS_ACT", full, [*inputs[:2], *scales], outputs)
    return replace(made, inputs=made.inputs[:2 + len(present)])


@lru_cache(maxsize=1024)
def _renumbered(bundle: ExprBundle, kept: Ints) -> ExprBundle:
    """Return the bundle with only the inputs that are kept."""
    dtypes = dict(enumerate(bundle.input_dtypes))
    table = {old: input(new, dtype) for new, old in enumerate(kept)
             if (dtype := dtypes.get(old)) is not None}
    return ExprBundle(tuple(substitute(bundle.outputs, table)))


def lower_norm_gemm(op: str, attrs: dict[str, Any], inputs: Specs,
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
    return Problem.of("NORM_GEMM", [_matrix_rows(x), parameters[0], b, parameters[1], *extras],
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


def lower_nbits(op: str, attrs: dict[str, Any], inputs: Specs,
                outputs: Sequence[TensorSpec]) -> Problem:
    """Scales and zero points as matrices, the bias as wide as the output."""
    a, b, scales, zeros, bias = (*inputs, None, None)[:5]
    y = outputs[0]
    assert b is not None and scales is not None
    n, blocks = b.shape[:2]
    kept = {name: attrs[name] for name in ("block_size", "act", "leaky_slope")}
    return Problem.of("MATMUL_NBITS", [
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
