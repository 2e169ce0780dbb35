"""What guards and score rules ask of a problem: dimensions by name, operand layouts, alignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ...contract import DTYPES
from ...problem import Problem, TensorSpec
from .product_axes import product_axes

GEMM_OPS = frozenset({"GEMM_BIAS_ACT", "MATMUL"})
INT32_MAX = 2**31 - 1

# Operators whose operands A and B are the matrices of a product.
PRODUCTS = GEMM_OPS | {"NORM_GEMM"}

_OPERANDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(GEMM_OPS, ("A", "B", "bias", "C")),
    "NORM_GEMM": ("A", "scale", "B", "shift", "bias", "C"),
    "MATMUL_NBITS": ("A", "B", "scales", "zero_points", "bias"),
    "CONV2D": ("X", "W", "bias", "residual"),
    "ATTENTION": ("Q", "K", "V", "mask", "kv_len", "q_starts", "k_starts"),
    "PAGED_ATTENTION": ("Q", "K", "V", "block_table", "kv_len", "mask"),
    "ATTENTION_GRAD": ("Q", "K", "V", "Y", "lse", "grad_Y", "mask", "kv_len"),
}


def problem_dims(problem: Problem) -> dict[str, int]:
    """Return the extents that guards and rules speak of.

    Always SIZE (elements of the first output) and RANK (largest of all tensors); M, N, K and BATCH
    of products, where batch axes that fold into rows count as M; ROWS and N of row operators; a
    convolution's as the product that it is, plus its channels, groups and kernel extents; QUERIES
    and KEYS of an attention, its query heads of all samples, and the elements of a head of q and
    of v.
    """
    present = [t for t in problem.tensors if t is not None]
    dims = {
        "SIZE": problem.outputs[0].size if problem.outputs else 0,
        "RANK": max((len(t.shape) for t in present), default=0),
    }
    return dims | _FAMILY_DIMS.get(problem.op_type, _no_dims)(problem)


def _no_dims(problem: Problem) -> dict[str, int]:
    return {}


def _gemm_dims(problem: Problem) -> dict[str, int]:
    """A stack of matrices times one matrix counts as the tall product that kernels make of it."""
    a, b = problem.inputs[:2]
    assert a is not None and b is not None
    trans_a, trans_b = (bool(problem.attr_map.get(name)) for name in ("trans_a", "trans_b"))
    extras = [t for t in problem.inputs[2:] if t is not None and len(t.shape) > 1]
    axes = product_axes((a, b, *problem.outputs, *extras), trans_a, trans_b)
    return {"M": axes.m, "N": problem.outputs[0].shape[-1], "K": a.shape[-2 if trans_a else -1],
            "BATCH": prod(extent for extent, _ in axes.batch)}


def _norm_gemm_dims(problem: Problem) -> dict[str, int]:
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    return {"M": y.shape[-2], "N": y.shape[-1], "K": x.shape[-1], "BATCH": prod(y.shape[:-2])}


def _nbits_dims(problem: Problem) -> dict[str, int]:
    a, shape = problem.inputs[0], problem.outputs[0].shape
    assert a is not None
    return {"M": prod(shape[:-1]), "N": shape[-1], "K": a.shape[-1], "BATCH": 1}


def _row_dims(problem: Problem) -> dict[str, int]:
    x = problem.inputs[0]
    assert x is not None
    return {"ROWS": prod(x.shape[:-1]), "N": x.shape[-1] if x.shape else 1}


def _transposed_dims(problem: Problem) -> dict[str, int]:
    a, b = problem.inputs[:2]
    assert a is not None and b is not None
    return {"M": a.shape[0], "N": b.shape[0], "K": a.shape[1]}


def _window_dims(problem: Problem) -> dict[str, int]:
    w = problem.inputs[1]
    assert w is not None
    return {"K": w.size}


def _conv_dims(problem: Problem) -> dict[str, int]:
    x, w, y = problem.inputs[0], problem.inputs[1], problem.outputs[0]
    assert x is not None and w is not None
    group = int(str(problem.attr_map.get("group", 1)))
    pixels = prod(y.shape[2:])
    return {
        "M": y.shape[0] * pixels, "N": y.shape[1] // group, "K": prod(w.shape[1:]),
        "BATCH": group, "IN_CHANNELS": x.shape[1], "OUT_CHANNELS": y.shape[1], "GROUPS": group,
        "KERNEL_H": w.shape[2], "KERNEL_W": w.shape[-1],
    }


def _attention_dims(problem: Problem) -> dict[str, int]:
    q, k, v = problem.inputs[:3]
    assert q is not None and k is not None and v is not None
    return {"QUERIES": q.shape[2], "KEYS": k.shape[2], "HEADS": q.shape[0] * q.shape[1],
            "HEAD_SIZE": q.shape[3], "VALUE_SIZE": v.shape[3]}


_FAMILY_DIMS: Mapping[str, Callable[[Problem], dict[str, int]]] = {
    **dict.fromkeys(GEMM_OPS, _gemm_dims),
    "NORM_GEMM": _norm_gemm_dims,
    "MATMUL_NBITS": _nbits_dims,
    **dict.fromkeys(("ROW", "LAB_REDUCE", "LAB_STREAM", "LAB_REMAT", "LAB_FUSE",
                     "LAB_COMPOSE_ROWS"), _row_dims),
    "LAB_COMPOSE_PRODUCT": _transposed_dims,
    "LAB_STAGE": _window_dims,
    "LAB_GRAPH": lambda problem: {"K": int(str(problem.attr_map["terms"]))},
    "SCAN": _row_dims,
    "CONV2D": _conv_dims,
    **dict.fromkeys(("ATTENTION", "ATTENTION_GRAD", "PAGED_ATTENTION"), _attention_dims),
}


@dataclass(frozen=True)
class Facts:
    """A problem with everything that is derived from it once for all candidates."""

    problem: Problem

    @cached_property
    def dims(self) -> dict[str, int]:
        """The named extents."""
        return problem_dims(self.problem)

    @cached_property
    def operands(self) -> dict[str, TensorSpec]:
        """The tensors that are there, by operand name: A, B, bias, C or X, X1, ...; Y, Y1, ..."""
        names = _OPERANDS.get(self.problem.op_type, ("X",))
        named = {(names[i] if i < len(names) else f"X{i}"): t
                 for i, t in enumerate(self.problem.inputs) if t is not None}
        return named | {f"Y{i or ''}": t for i, t in enumerate(self.problem.outputs)}

    @cached_property
    def layouts(self) -> dict[str, frozenset[str]]:
        """The layouts that each operand is in; products see op(A) [M, K] and op(B) [K, N]."""
        attrs = self.problem.attr_map
        swapped = {"A": bool(attrs.get("trans_a")), "B": bool(attrs.get("trans_b"))}
        is_product = self.problem.op_type in PRODUCTS
        return {name: _layouts(spec, is_product and swapped.get(name, False))
                for name, spec in self.operands.items()}

    @cached_property
    def alignment(self) -> dict[str, int]:
        """Bytes (up to 16) that each operand's address and outer byte strides are multiples of."""
        return {name: alignment(spec) for name, spec in self.operands.items()}

    @cached_property
    def input_dtypes(self) -> tuple[str | None, ...]:
        """Dtypes of the inputs; None for an absent one."""
        return tuple(t.dtype if t else None for t in self.problem.inputs)

    @cached_property
    def output_dtypes(self) -> tuple[str, ...]:
        """Dtypes of the outputs."""
        return tuple(t.dtype for t in self.problem.outputs)


def _layouts(spec: TensorSpec, swap: bool) -> frozenset[str]:
    """Return every layout name that describes a tensor; "strided" describes all."""
    found = {"strided"}
    if spec.is_dense:
        found.add("dense")
    if any(s == 0 and n > 1 for s, n in zip(spec.strides, spec.shape, strict=True)):
        found.add("broadcast")
    axes = list(zip(spec.shape, spec.strides, strict=True))
    if not axes or axes[-1][0] == 1 or axes[-1][1] == 1:
        found.add("inner")
    last = axes[-1] if axes else (1, 1)
    before = axes[-2] if len(axes) > 1 else (1, 1)
    row, col = (before, last) if swap else (last, before)
    if row[0] == 1 or row[1] == 1:
        found.add("row")
    if col[0] == 1 or col[1] == 1:
        found.add("col")
    return frozenset(found)


def alignment(spec: TensorSpec) -> int:
    """Return the largest power of two up to 16 that divides the address and all outer byte strides.

    Strides of 0 and 1 (broadcast, contiguous) and those of extents of 1 do not count.
    """
    itemsize = DTYPES[spec.dtype].itemsize
    result = spec.align
    for extent, stride in zip(spec.shape, spec.strides, strict=True):
        if extent > 1 and stride not in (0, 1):
            result = min(result, (stride * itemsize) & -(stride * itemsize))
    return result
