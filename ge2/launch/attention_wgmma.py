"""Launch rule of streaming attention by wgmma: tensors by tensor map, persistent blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..compiler.ir.size import larger, smaller
from ..errors import Unsupported
from ..problem import Problem
from .attention_args import Field, Heads
from .attention_call import FAR, AttentionCall, attention_call
from .attention_examples import attention_problem, examples_for
from .gemm_source import ALIGNMENT_SLACK, cpp
from .record import SEMAPHORES, LaunchRecord, TensorMapSpec

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

SHARED_BYTES = 232448  # the largest dynamic shared memory of a block on sm_90
STAGES = 2  # of K and of V; more were not faster
SECTION_BYTES = 32 << 20  # of keys and values that stay in the L2 cache
MAP_BYTES = 128
STORE_ROWS = 16
MAPS = ("map_q", "map_k", "map_v", "map_y")
MORE: tuple[Field, ...] = (("unsigned*", "tickets", "u8"), ("int", "section", "i4"))
# Columns that a head is rounded up to, and the keys of a block that fit with them.
BLOCKS = {32: (128,), 64: (128,), 80: (128, 144, 160), 96: (128, 144, 160), 128: (128, 144, 160),
          192: (112,), 256: (80,)}
FEW_KEYS = (64, 80)  # of a block, where formulas and masks need registers
THREE_GROUPS = 64  # columns up to which registers suffice for three groups


@dataclass(frozen=True, slots=True)
class WgmmaAttentionRule:
    """One launch; blocks take tiles of queries in turn, or from a counter where tiles differ."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launch; see LaunchRule."""
        call = attention_call(problem)
        if problem.outputs[0].size == 0:
            return []
        if refusal := wgmma_refusal(variant, call):
            raise Unsupported(refusal, argument=variant.id, found=problem)
        bm, bn = tile_of(variant)
        columns = columns_of(call)
        dynamic = call.is_banded or bool(call.kv_len)
        classes = {
            "COLUMNS": columns, "STAGES": STAGES, "Q_BUFFERS": q_buffers(variant, columns),
            "DYNAMIC": cpp(dynamic),
            "AHEAD": cpp(call.right != FAR), "BEHIND": cpp(call.left != FAR)}
        args, relocs = call.pack(MAPS, MORE, {"section": section_of(call)},
                                 {"tickets": (SEMAPHORES, 0)} if dynamic else {})
        tiles = -(-call.queries // bm) * call.heads * call.batch
        return [LaunchRecord(
            call.source(variant, classes, MAPS, MORE),
            grid=(smaller(tiles, device.sm_count), 1, 1), block=(128 + bm * 2, 1, 1), args=args,
            relocs=relocs, smem=shared_bytes(variant, columns), tensor_maps=(
                head_map(0, call, call.q, call.queries, call.size, call.heads, bm),
                head_map(1, call, call.k, call.keys, call.size, call.groups, bn),
                head_map(2, call, call.v, call.keys, call.value_size, call.groups, bn),
                head_map(3, call, call.y, call.queries, call.value_size, call.heads, STORE_ROWS)),
            semaphores=2 if dynamic else 0, pdl=True)]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        found = [*examples_for(("f16", "bf16")),
                 attention_problem("bf16", (1, 1, 200, 128)),
                 attention_problem("bf16", (1, 2, 65, 256), causal=True),
                 attention_problem("f16", (1, 2, 65, 192), causal=True)]
        return [p for p in found if not wgmma_refusal(variant, attention_call(p))]


def tile_of(variant: Variant) -> tuple[int, int]:
    """Return the queries of a block's tile and the keys that meet them at a time."""
    return int(variant.param("BM")), int(variant.param("BN"))


def columns_of(call: AttentionCall) -> int:
    """Return the columns of a head in shared memory, 0 where it is too long."""
    most = larger(call.size, call.value_size)
    return next((columns for columns in BLOCKS if most <= columns), 0)


def key_blocks(call: AttentionCall, columns: int) -> tuple[int, ...]:
    """Return how many keys at a time leave registers enough."""
    if call.is_plain:
        return BLOCKS[columns]
    operands = [x for x in (*(extra for _, extra in call.extras), call.mask) if x]
    loads = sum(x.spread.startswith("FULL") for x in operands)
    if columns > 192:
        return () if operands else FEW_KEYS[:1]
    if columns > 128:
        return FEW_KEYS[:1]
    return FEW_KEYS if loads > (1 if columns <= 64 else 0) else BLOCKS[columns]


def box_columns(columns: int) -> int:
    """Return the columns of a box of WgmmaHead, whose bytes are also its swizzle."""
    return 32 if columns <= 32 else 64


def _tile_bytes(rows: int, columns: int) -> int:
    box = box_columns(columns)
    return -(-columns // box) * box * rows * 2


def q_buffers(variant: Variant, columns: int) -> int:
    """Return how many buffers of Q fit, up to 3.

    One holds results on their way out, another the queries at work: a third lets those of the next
    tile arrive meanwhile, which short tiles have no other time for.
    """
    fits = (n for n in (3, 2) if _shared_bytes(variant, columns, n) <= SHARED_BYTES)
    return next(fits, 1)


def shared_bytes(variant: Variant, columns: int) -> int:
    """Return the shared memory of a block, what aligns it included."""
    return _shared_bytes(variant, columns, q_buffers(variant, columns))


def _shared_bytes(variant: Variant, columns: int, buffers: int) -> int:
    bm, bn = tile_of(variant)
    tiles = buffers * _tile_bytes(bm, columns) + 2 * STAGES * _tile_bytes(bn, columns)
    return tiles + buffers * (2 * 8 + 4) + 4 * STAGES * 8 + ALIGNMENT_SLACK


def section_of(call: AttentionCall) -> int:
    """Return how many heads, of all samples, are worked on at a time.

    Their keys and values fit in the L2 cache. Sections are equally long: tiles of a short one at
    the end would keep few blocks busy.
    """
    itemsize = 2
    most = larger(SECTION_BYTES // (call.keys * (call.size + call.value_size) * itemsize), 1)
    heads = call.heads * call.batch
    sections = -(-heads // (most * (call.heads // call.groups)))
    return -(-heads // sections)


def head_map(index: int, call: AttentionCall, x: Heads, rows: int, size: int, heads: int,
             tile: int) -> TensorMapSpec:
    """Return the map of a tensor: elements of a row, rows, heads, samples."""
    row = x.row or -(-size // 8) * 8  # of an extent of 1, which is never stepped along
    head = x.head or row * rows
    batch = x.batch or head * heads
    width = box_columns(columns_of(call))
    return TensorMapSpec(
        MAP_BYTES * index, x.slot, 0, x.dtype, (size, rows, heads, call.batch),
        (row * 2, head * 2, batch * 2), (width, tile, 1, 1), width * 2)


def wgmma_refusal(variant: Variant, call: AttentionCall) -> str:
    """Return why a variant cannot serve a call; empty where it can."""
    columns = columns_of(call)
    if not columns:
        return f"heads have more than {max(BLOCKS)} elements"
    bm, bn = tile_of(variant)
    if not (blocks := key_blocks(call, columns)):
        return f"no registers are left for operands of scores beside heads of {columns}"
    if bn not in blocks:
        return f"such scores over heads of {columns} are taken with blocks of {blocks} keys"
    if bm == 192 and not (columns <= THREE_GROUPS and call.is_plain):
        return f"three groups take plain scores over heads of up to {THREE_GROUPS}"
    if variant.param("OVERLAP") == "flat" and q_buffers(variant, columns) == 1:
        return "two buffers of Q do not fit"
    if call.starts:
        return "packed sequences do not begin where tiles do"
    return tma_refusal(call)


def tma_refusal(call: AttentionCall) -> str:
    """Return why tensor maps do not reach a tensor; empty where they do."""
    if call.keys == 0 or call.size == 0:
        return "a tensor map has no empty axis"
    if call.value_size % 8:
        # Seen on an H200: a row that ends inside a unit has the rest of it overwritten.
        return "tensor maps store whole units of 16 bytes, and a row of the result ends inside one"
    extents = {"q": (call.heads, call.queries), "k": (call.groups, call.keys),
               "v": (call.groups, call.keys), "y": (call.heads, call.queries)}
    for name, (heads, rows) in extents.items():
        x: Heads = getattr(call, name)
        steps = ((x.batch, call.batch), (x.head, heads), (x.row, rows))
        if x.align % 16 or any(n != 1 and (s % 8 or s <= 0) for s, n in steps):
            return f"{name} is not aligned to 16 bytes in every row"
    return ""
