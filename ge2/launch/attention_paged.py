"""Launch rule of attention over keys and values in pages."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..compiler.kernels.strides import expand
from ..compiler.opdefs.paged_attention import LENGTH, MASK, TABLE, TILE
from ..contract import DTYPES
from ..errors import Unsupported
from ..problem import Problem, TensorSpec
from .attention_args import Field
from .attention_call import AttentionCall, attention_call, heads_spec
from .attention_decode import decode_records, decode_refusal
from .record import LaunchRecord
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

FIELDS: tuple[Field, ...] = (("const void*", "table", "u8"), ("long long", "table_step", "i8"))


def paged_call(problem: Problem) -> AttentionCall:
    """Return the normal form of a PAGED_ATTENTION problem: k and v step over pages in `batch`.

    Raises:
        StrideMismatch: the elements of a head are not neighbours in memory.
        Unsupported: a tensor is too long for 32-bit positions.
    """
    q, k, v, table, length = problem.inputs[:5]
    assert q is not None and k is not None and v is not None and table is not None
    mask = problem.inputs[MASK] if len(problem.inputs) > MASK else None
    keys = table.shape[1] * k.shape[2]
    rows = [replace(x, shape=(q.shape[0], x.shape[1], keys, x.shape[3])) for x in (k, v)]
    call = attention_call(Problem("ATTENTION", (q, *rows, mask, length, None, None),
                                  problem.outputs, (*problem.attrs, ("query_offset", 0))))
    first = len(problem.inputs)
    return replace(
        call, k=heads_spec(k, 1, "k"), v=heads_spec(v, 2, "v"), y=replace(call.y, slot=first),
        lse=replace(call.lse, slot=first + 1) if call.lse else None,
        mask=replace(call.mask, slot=MASK) if call.mask else None)


def paged_refusal(problem: Problem) -> str:
    """Return why attention_decode_paged cannot serve a problem; empty where it can."""
    k = problem.inputs[1]
    assert k is not None
    if k.shape[2] % TILE or not k.shape[2]:
        return f"takes pages of a multiple of {TILE} keys, not {k.shape[2]}"
    return decode_refusal(paged_call(problem))


@dataclass(frozen=True, slots=True)
class PagedRule:
    """attention_decode_paged: as attention_decode; the page size is compiled in."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if problem.outputs[0].size == 0:
            return []
        refusal = paged_refusal(problem)
        if refusal:
            raise Unsupported(refusal, argument=variant.id)
        k, table = problem.inputs[1], problem.inputs[TABLE]
        assert k is not None and table is not None
        classes = {"PAGE": k.shape[2], "ENTRY": DTYPES[table.dtype].c_type}
        return decode_records(
            paged_call(problem), variant, device, classes, FIELDS,
            {"table_step": table.strides[0]}, {"table": (TABLE, 0), "kv_len": (LENGTH, 0)})

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [problem for dtype in ("f16", "bf16") for problem in (
            paged_problem(dtype, (2, 8, 1, 128), groups=2, pages=40, rows=16, most=20, lse=True),
            paged_problem(dtype, (1, 4, 3, 64), groups=1, pages=9, rows=64, most=5, mask="bool",
                          table="i64", causal=True))]


def paged_problem(dtype: str, q: tuple[int, int, int, int], *, groups: int, pages: int, rows: int,
                  most: int, table: str = "i32", length: str = "i32", mask: str = "",
                  causal: bool = False, lse: bool = False, side_by_side: bool = False) -> Problem:
    """Return a PAGED_ATTENTION problem.

    Args:
        dtype, q: element type and extents [batch, heads, queries, size] of q.
        groups, pages, rows: key heads, pages and keys of a page.
        most: pages of a sample.
        table, length: element types of block_table and kv_len.
        mask: element type of a mask [batch, 1, 1, keys]; empty without one.
        causal, lse: see ATTENTION.
        side_by_side: the heads of a key are neighbours, as in pages [page, row, head, element].
    """
    batch, heads, queries, size = q
    scores = (batch, heads, queries, most * rows)
    cache = TensorSpec.dense(dtype, (pages, groups, rows, size))
    if side_by_side:
        cache = replace(cache, strides=(rows * groups * size, size, groups * size, 1))
    inputs = [TensorSpec.dense(dtype, q), cache, cache, TensorSpec.dense(table, (batch, most)),
              TensorSpec.dense(length, (batch,)), None]
    if mask:
        inputs[MASK] = expand(TensorSpec.dense(mask, (batch, 1, 1, scores[3])), scores)
    outputs = (TensorSpec.dense(dtype, q), TensorSpec.dense(DTYPES[dtype].compute, q[:3]))
    attrs: dict[str, Hashable] = {"scale": size**-0.5, "left_window_size": -1,
                                  "right_window_size": 0 if causal else -1, "score": None}
    return Problem("PAGED_ATTENTION", tuple(inputs), outputs[:1 + lse],
                   tuple(sorted(attrs.items())))


PAGED_RULES: dict[str, LaunchRule] = {"attention.decode_paged": PagedRule()}
