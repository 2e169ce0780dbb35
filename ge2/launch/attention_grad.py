"""Launch rules of attention's gradients: statistics, then gradients by keys, then by queries."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..compiler.kernels.strides import expand
from ..compiler.opdefs.attention_grad import GRADIENT, LENGTH, LSE, MASK, OUT
from ..contract import DTYPES
from ..problem import Problem, TensorSpec
from .attention_args import HEADS_DTYPE, Field, Heads
from .attention_call import AttentionCall, attention_call, heads_spec
from .record import WORKSPACE, KernelSource, LaunchRecord
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

ALIGNMENT_SLACK = 1024  # ge2::shared_memory() rounds its base up to this
GRADIENTS = ("grad_q", "grad_k", "grad_v")
FIELDS: tuple[Field, ...] = (
    *(("ge2::HeadTensor", name, HEADS_DTYPE) for name in ("grad_y", *GRADIENTS)),
    ("void*", "statistics", "u8"), ("int", "statistics_rows", "i4"))


@dataclass(frozen=True, slots=True)
class GradientCall:
    """An ATTENTION_GRAD problem.

    Attributes:
        forward: the attention whose gradients are asked for; y and lse are read.
        grad_y: the gradient of y.
        results: gradients of q, k and v.
    """

    forward: AttentionCall
    grad_y: Heads
    results: tuple[Heads, Heads, Heads]

    def statistics_bytes(self, rows: int) -> int:
        """Return the bytes of two numbers of the compute type for each of so many rows per head."""
        x = self.forward
        itemsize = DTYPES[DTYPES[x.q.dtype].compute].itemsize
        return x.batch * x.heads * rows * 2 * itemsize


def gradient_call(problem: Problem) -> GradientCall:
    """Return the normal form of an ATTENTION_GRAD problem.

    Raises:
        StrideMismatch: the elements of a head are not neighbours in memory.
        Unsupported: a tensor is too long for 32-bit positions.
    """
    inputs = (*problem.inputs, *[None] * (LENGTH + 1 - len(problem.inputs)))
    y, lse, grad_y = inputs[OUT], inputs[LSE], inputs[GRADIENT]
    assert y is not None and lse is not None and grad_y is not None
    call = attention_call(Problem("ATTENTION", (*inputs[:3], inputs[MASK], inputs[LENGTH], None,
                                                None), (y, lse), problem.attrs))
    assert call.lse is not None
    forward = replace(call, y=replace(call.y, slot=OUT), lse=replace(call.lse, slot=LSE),
                      mask=replace(call.mask, slot=MASK) if call.mask else None)
    dq, dk, dv = (heads_spec(spec, len(problem.inputs) + i, name)
                  for i, (name, spec) in enumerate(zip(GRADIENTS, problem.outputs, strict=True)))
    return GradientCall(forward, heads_spec(grad_y, GRADIENT, "grad_y"), (dq, dk, dv))


def simt_gradient_bytes(call: AttentionCall) -> int:
    """Return the shared memory of a block of SimtGradient."""
    itemsize = DTYPES[DTYPES[call.q.dtype].compute].itemsize
    values = 2 * 16 * (call.size + 1 + call.value_size + 1 + 17) + 2 * 16
    return values * itemsize + ALIGNMENT_SLACK


def gradient_records(call: GradientCall, variant: Variant, tile: int, threads: int, smem: int,
                     classes: dict[str, Any]) -> list[LaunchRecord]:
    """Return the three launches of a variant.

    Args:
        call, variant: what is launched.
        tile: own keys, or own queries, of a block.
        threads, smem: of a block of the second and the third launch.
        classes: further context.
    """
    x = call.forward
    values: dict[str, Any] = {
        name: {"batch": heads.batch, "head": heads.head, "row": heads.row}
        for name, heads in zip(("grad_y", *GRADIENTS), (call.grad_y, *call.results), strict=True)}
    values["statistics_rows"] = x.queries
    holes = {name: (heads.slot, 0) for name, heads in zip(
        ("grad_y", *GRADIENTS), (call.grad_y, *call.results), strict=True)}
    holes |= {"statistics": (WORKSPACE, 0), **({"kv_len": (LENGTH, 0)} if x.kv_len else {})}
    args, relocs = x.pack((), FIELDS, values, holes)
    source = x.source(variant, {"WIDE": 1, **classes}, (), FIELDS)
    rows = x.batch * x.heads * x.queries
    grids = (-(-rows // (threads // 32)), -(-x.keys // tile) * x.groups * x.batch, x.tiles(tile))
    return [LaunchRecord(KernelSource(source.template, source.context, entry), (grid, 1, 1),
                         (threads, 1, 1), args, relocs, smem=smem if index else 0,
                         workspace=call.statistics_bytes(x.queries))
            for index, (entry, grid) in enumerate(zip(variant.kernel.entries, grids, strict=True))]


@dataclass(frozen=True, slots=True)
class SimtGradientRule:
    """attention_grad_simt: 16 keys or 16 queries of a block."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if not any(spec.size for spec in problem.outputs):
            return []
        call = gradient_call(problem)
        return gradient_records(call, variant, 16, 256, simt_gradient_bytes(call.forward), {})

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        found = []
        for dtype in ("f32", "f64", "f16", "bf16"):
            found += [gradient_problem(dtype, (1, 4, 20, 32), groups=2, keys=40, causal=True),
                      gradient_problem(dtype, (2, 2, 9, 64), value=20, mask=dtype, length="i32")]
        return found


@dataclass(frozen=True, slots=True)
class MmaGradientRule:
    """attention_grad_mma: 64 keys or 64 queries of a block of four warps."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if not any(spec.size for spec in problem.outputs):
            return []
        call = gradient_call(problem)
        x = call.forward
        sizes = (x.size, x.size, x.value_size, x.value_size)
        read = (x.q, x.k, x.v, call.grad_y)
        wide = min(heads.vector(n, (8, 4, 2)) for heads, n in zip(read, sizes, strict=True))
        dq, dk, dv = call.results
        pairs = all(heads.vector(n, (2,)) == 2 for heads, n in (
            (dq, x.size), (dk, x.size), (dv, x.value_size)))
        return gradient_records(call, variant, 64, 128, mma_gradient_bytes(variant, x),
                                {"VEC": wide, "PAIRED": int(pairs)})

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        found = []
        for dtype in ("f16", "bf16"):
            found += [gradient_problem(dtype, (1, 4, 70, 128), groups=2, keys=90, causal=True),
                      gradient_problem(dtype, (2, 2, 40, 64), value=128, mask=dtype, length="i32"),
                      gradient_problem(dtype, (1, 2, 33, 21), value=20, mask="bool", left=9)]
        return found


def mma_gradient_bytes(variant: Variant, call: AttentionCall) -> int:
    """Return the shared memory of a block of MmaGradient."""
    chunks = [-(-n // 16) * 2 + 1 for n in (call.size, call.value_size)]
    rows = 64 + 2 * int(variant.param("STREAMED"))
    return 64 * 8 + rows * 16 * sum(chunks) + ALIGNMENT_SLACK


def gradient_problem(dtype: str, q: tuple[int, int, int, int], *, groups: int = 0, keys: int = 0,
                     value: int = 0, mask: str = "", mask_shape: tuple[int, ...] = (),
                     length: str = "", causal: bool = False, offset: int = 0,
                     left: int = -1) -> Problem:
    """Return an ATTENTION_GRAD problem of dense operands; see attention_problem()."""
    batch, heads, queries, size = q
    groups, keys, value = groups or heads, keys or queries, value or size
    dense = TensorSpec.dense
    scores = (batch, heads, queries, keys)
    own = (dense(dtype, q), dense(dtype, (batch, groups, keys, size)),
           dense(dtype, (batch, groups, keys, value)))
    y = dense(dtype, (batch, heads, queries, value))
    inputs = (*own, y, dense(DTYPES[dtype].compute, q[:3]), y,
              expand(dense(mask, mask_shape or scores), scores) if mask else None,
              dense(length, (batch,)) if length else None)
    attrs: dict[str, Hashable] = {
        "scale": size**-0.5, "query_offset": offset, "left_window_size": left,
        "right_window_size": 0 if causal else -1}
    return Problem("ATTENTION_GRAD", inputs, own, tuple(sorted(attrs.items())))


GRADIENT_RULES: dict[str, LaunchRule] = {
    "attention.grad_simt": SimtGradientRule(),
    "attention.grad_mma": MmaGradientRule(),
}
