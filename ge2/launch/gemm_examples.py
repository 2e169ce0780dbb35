"""Representative GEMM_BIAS_ACT problems: one for each class of source that a kernel renders."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..compiler.ir.expr import ExprBundle, cast, erf, input, maximum
from ..contract import DTYPES
from ..problem import Problem, TensorSpec, dense_strides

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import DtypeRule, KernelInfo

M, N, K = 128, 256, 64


def examples_for(kernel: KernelInfo, k: int = K) -> list[Problem]:
    """Return problems over the kernel's dtypes, the four layouts, epilogues and alignments.

    Args:
        k: inner extent.
    """
    shape = (M, N, k)
    found: list[Problem] = []
    for rule in kernel.dtypes:
        for dtypes in _concrete(rule):
            found.append(gemm_problem(dtypes, shape=shape))
        a, b, y = _concrete(rule)[0]
        for trans_a, trans_b in ((False, True), (True, False), (True, True)):
            found.append(gemm_problem((a, b, y), shape=shape, trans=(trans_a, trans_b),
                                      fused=True))
        found.append(gemm_problem((a, b, y), shape=shape, align=DTYPES[a].itemsize,
                                  fused=True))
        found.append(gemm_problem((a, b, y), shape=(M, N - 1, k - 1)))
        if "row_values" in kernel.flags:
            found.append(with_row_values(gemm_problem((a, b, y), shape=shape), "sumsquare"))
    return found


def with_row_values(problem: Problem, rows: str) -> Problem:
    """Return a product that also says something of each row: "sum", "sumsquare" or "max"."""
    y = problem.outputs[0]
    value = TensorSpec.dense(y.dtype, (*y.shape[:-1], 1), y.align)
    attrs = {**problem.attr_map, "rows": rows}
    return replace(problem, outputs=(*problem.outputs, value), attrs=tuple(sorted(attrs.items())))


def _concrete(rule: DtypeRule) -> list[tuple[str, str, str]]:
    if rule.inputs[0] == "*":
        return [(d, d, d) for d in ("f32", "f16", "bf16", "f64", "i32", "i64")]
    sums = "i32" if DTYPES[rule.inputs[0]].kind == "int" else "bf16"
    outputs = (sums, "f32", "f16") if rule.output == "*" else (rule.output,)
    return [(rule.inputs[0], rule.inputs[1], output) for output in outputs]


def gemm_problem(dtypes: tuple[str, str, str], *, shape: tuple[int, int, int] = (M, N, K),
                 trans: tuple[bool, bool] = (False, False), align: int = 16,
                 fused: bool = False) -> Problem:
    """Return act(A B + bias) or, fused, gelu(A B + bias) * extra with a full extra input.

    Args:
        dtypes: of A, B and Y; bias has Y's, the extra input f32.
        shape: m, n, k.
        trans: whether A and B are stored transposed.
        align: of every address, in bytes.
        fused: with the second epilogue.
    """
    a, b, y = dtypes
    m, n, k = shape
    out = (m, n)
    compute = DTYPES[y].compute
    sums = "i32" if DTYPES[a].kind == "int" else "f32"
    acc = input(0, compute if DTYPES[a].itemsize > 1 else sums)
    value = cast(acc, compute) + input(1, compute)
    bias_spec = TensorSpec(y, out, (0, 1), align)
    inputs: list[TensorSpec | None] = [
        TensorSpec.dense(a, (k, m) if trans[0] else (m, k), align),
        TensorSpec.dense(b, (n, k) if trans[1] else (k, n), align), bias_spec]
    if fused:
        x = cast(value, "f32")
        value = x * 0.5 * (erf(x * 0.7071067811865476) + 1.0) * input(3)
        inputs += [None, TensorSpec("f32", out, dense_strides(out), align)]
    elif DTYPES[y].kind == "float":
        value = maximum(value, 0.0)
    attrs: dict[str, Hashable] = {
        "trans_a": trans[0], "trans_b": trans[1], "alpha": 1.0, "beta": 1.0, "act": "none",
        "leaky_slope": 0.01, "epilogue": ExprBundle((value,))}
    return Problem("GEMM_BIAS_ACT", tuple(inputs), (TensorSpec.dense(y, out, align),),
                   tuple(sorted(attrs.items())))
