"""Checks of attention problems: outputs as inferred, then what kernels ask of side inputs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ..errors import DtypeMismatch, MissingInput, StrideMismatch
from ..problem import Problem
from .check_shapes import Check, require
from .schemas import KernelOp


def _attention(problem: Problem, op: KernelOp) -> None:
    q, k = problem.inputs[:2]
    assert q is not None and k is not None
    require(len(q.shape) == 4, "q", q, "4 axes: batch, head, query, element")
    _outputs_as_inferred(problem, {"lse": len(problem.outputs) > 1})
    named = {op.input_name(slot): spec for slot, spec in enumerate(problem.inputs)}
    starts = named.get("q_starts")
    scores = (starts.shape[0] - 1 if starts else q.shape[0], *q.shape[1:3], k.shape[2])
    for name, given in named.items():
        if given is None and name.startswith("extras"):
            raise MissingInput("the formula of the scores needs its operands", argument=name,
                               found="rank -1")
        if given is not None and name.startswith(("mask", "extras")):
            require(given.shape == scores, name, given, f"{scores}, expanded by stride 0")
        if given is not None and name in ("kv_len", "q_starts", "k_starts") and not given.is_dense:
            raise StrideMismatch("lengths and starts lie side by side", argument=name,
                                 found=given.strides, wanted="(1,)")


def _attention_grad(problem: Problem, op: KernelOp) -> None:
    _outputs_as_inferred(problem, {})
    named = {op.input_name(slot): spec for slot, spec in enumerate(problem.inputs)}
    q, k, mask, length = (named.get(n) for n in ("q", "k", "mask", "kv_len"))
    assert q is not None and k is not None
    scores = (*q.shape[:3], k.shape[2])
    if mask is not None:
        require(mask.shape == scores, "mask", mask, f"{scores}, expanded by stride 0")
    if length is not None and not length.is_dense:
        raise StrideMismatch("lengths lie side by side", argument="kv_len", found=length.strides,
                             wanted="(1,)")


def _paged_attention(problem: Problem, op: KernelOp) -> None:
    _outputs_as_inferred(problem, {"lse": len(problem.outputs) > 1})
    named = {op.input_name(slot): spec for slot, spec in enumerate(problem.inputs)}
    q, k, table, length, mask = (named.get(n) for n in ("q", "k", "block_table", "kv_len", "mask"))
    assert q is not None and k is not None and table is not None and length is not None
    scores = (*q.shape[:3], table.shape[1] * k.shape[2])
    if mask is not None:
        require(mask.shape == scores, "mask", mask, f"{scores}, expanded by stride 0")
    for name, spec in (("block_table", table), ("kv_len", length)):
        if spec.strides[-1] != 1 and spec.shape[-1] > 1:
            raise StrideMismatch("table entries and lengths lie side by side", argument=name,
                                 found=spec.strides, wanted="a last stride of 1")


def _outputs_as_inferred(problem: Problem, attrs: Mapping[str, Hashable]) -> None:
    """Check that outputs have the shapes and dtypes that the operator's inference says.

    Args:
        attrs: attributes of the operator that the problem's do not say.
    """
    from ..compiler import opdefs
    from ..compiler.ir.types import TensorType

    types = [None if t is None else TensorType(t.dtype, t.shape) for t in problem.inputs]
    wanted = opdefs.infer(problem.op_type, types, {**problem.attr_map, **attrs})
    for index, (spec, kind) in enumerate(zip(problem.outputs, wanted, strict=True)):
        require(spec.shape == kind.shape, f"output {index}", spec, kind.shape)
        if spec.dtype != kind.dtype:
            raise DtypeMismatch(f"{problem.op_type} makes another element type",
                                argument=f"output {index}", found=spec.dtype, wanted=kind.dtype)


CHECKS: dict[str, Check] = {
    "ATTENTION": _attention,
    "ATTENTION_GRAD": _attention_grad,
    "PAGED_ATTENTION": _paged_attention,
}
