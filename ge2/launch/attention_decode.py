"""Launch rules of attention of few queries over many keys: the keys are split over blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..compiler.ir.size import larger, smaller
from ..compiler.opdefs.paged_attention import MOST_HEAD, MOST_ROWS
from ..errors import Unsupported
from ..problem import Problem
from .attention_args import Field
from .attention_call import AttentionCall, attention_call
from .attention_examples import alibi, attention_problem, slopes
from .record import SEMAPHORES, WORKSPACE, KernelSource, LaunchRecord
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

ALIGNMENT_SLACK = 1024  # ge2::shared_memory() rounds its base up to this
IN_FLIGHT = 65536  # bytes of keys and values that a multiprocessor asks for at a time
MERGED_APART = 49  # splits from which a second launch merges faster than the last block
FIELDS: tuple[Field, ...] = (("float*", "states", "u8"), ("unsigned*", "tickets", "u8"),
                             ("int", "splits", "i4"))


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """How one call is spread over the device.

    Attributes:
        total: query rows of a key head.
        tiles: of 8 query rows, that a block takes.
        shares: blocks that share no keys: key heads of all samples, times groups of query rows.
        splits: blocks that share the keys of one.
        slots: blocks that the device holds at a time.
    """

    total: int
    tiles: int
    shares: int
    splits: int
    slots: int

    @property
    def rows(self) -> int:
        """Query rows of a block."""
        return 8 * self.tiles


def decode_plan(variant: Variant, call: AttentionCall, device: DeviceProfile) -> DecodePlan:
    """Return the fewest splits that fill the device once.

    A part of a wave takes as long as a whole one, and so decides more than the number of blocks: of
    512 blocks, 264 at a time were measured to take four fifths of the time of 396 at a time.
    """
    warps = int(variant.param("WARPS"))
    total = call.heads // call.groups * call.queries
    tiles = tiles_of(call)
    shares = larger(1, call.batch * call.groups * -(-total // (8 * tiles)))
    slots = device.sm_count * blocks_per_multiprocessor(warps, call)
    splits = larger(1, smaller(slots // shares, -(-call.keys // (16 * warps))))
    return DecodePlan(total, tiles, shares, splits, slots)


def tiles_of(call: AttentionCall) -> int:
    """Return the tiles of 8 query rows that a block takes: two where registers allow."""
    few = call.heads // call.groups * call.queries <= 8
    return 1 if few or call.size + call.value_size > 320 else 2


def blocks_per_multiprocessor(warps: int, call: AttentionCall) -> int:
    """Return how many blocks keep enough bytes in flight: 8 warps of heads of 128.

    Two tiles of rows leave registers for 8 warps.
    """
    wanted = IN_FLIGHT // (16 * 2 * (call.size + call.value_size))
    return max(8, min(16 if tiles_of(call) == 1 else 8, wanted)) // warps


def decode_shared_bytes(variant: Variant, call: AttentionCall, device: DeviceProfile) -> int:
    """Return the shared memory of a block: the states of its warps, and at least so much that no
    more blocks than planned lie on a multiprocessor."""
    warps = int(variant.param("WARPS"))
    states = warps * 8 * (call.value_size + 4) * 4 + ALIGNMENT_SLACK
    share = device.smem_per_sm // (blocks_per_multiprocessor(warps, call) + 1)
    return max(states, min(share, device.smem_per_block))


def decode_refusal(call: AttentionCall) -> str:
    """Return why the decoding kernels cannot serve a call; empty where they can."""
    if call.starts:
        return "packed sequences are of any number of queries"
    if call.heads // call.groups * call.queries > MOST_ROWS:
        return f"takes up to {MOST_ROWS} query rows of a key head"
    if call.size % 16 or call.value_size % 16 or max(call.size, call.value_size) > MOST_HEAD:
        return (f"takes heads of a multiple of 16 up to {MOST_HEAD}, not {call.size} and "
                f"{call.value_size}")
    if not call.size or not call.value_size:
        return "takes heads that are not empty"
    for name, heads, n in (("q", call.q, call.size), ("k", call.k, call.size),
                           ("v", call.v, call.value_size)):
        if heads.vector(n, (8,)) != 8:
            return f"{name} is not aligned to 16 bytes"
    if call.y.vector(call.value_size, (4,)) != 4:
        return "the output is not aligned to 8 bytes"
    return ""


def decode_records(call: AttentionCall, variant: Variant, device: DeviceProfile,
                   classes: Mapping[str, Any] | None = None, more: tuple[Field, ...] = (),
                   values: Mapping[str, int] | None = None,
                   addresses: Mapping[str, tuple[int, int]] | None = None) -> list[LaunchRecord]:
    """Return the launches of a call.

    Args:
        call, variant, device: what is launched where.
        classes: context of the template.
        more, values, addresses: members of Args besides FIELDS, and what they hold.

    Raises:
        Unsupported: see decode_refusal.
    """
    refusal = decode_refusal(call)
    if refusal:
        raise Unsupported(refusal, argument=variant.id)
    plan = decode_plan(variant, call, device)
    fields = (*FIELDS, *more)
    held = {"splits": plan.splits, **(values or {})}
    holes = dict(addresses or {})
    split = plan.splits > 1
    apart = split and plan.splits >= MERGED_APART
    if split:
        holes["states"] = (WORKSPACE, 0)
    if split and not apart:
        holes["tickets"] = (SEMAPHORES, 0)
    args, relocs = call.pack((), fields, held, holes)
    source = call.source(variant, {"TILES": plan.tiles, **(classes or {})}, (), fields)
    states = plan.shares * plan.splits * plan.rows * (call.value_size + 4) * 4 if split else 0
    threads = int(variant.param("WARPS")) * 32
    records = [LaunchRecord(
        source, (plan.shares * plan.splits, 1, 1), (threads, 1, 1), args, relocs,
        smem=decode_shared_bytes(variant, call, device), workspace=states,
        semaphores=plan.shares if split and not apart else 0, pdl=True)]
    if apart:
        merging = KernelSource(source.template, source.context, variant.kernel.entries[1])
        records.append(LaunchRecord(merging, (plan.shares, 1, 1), (threads, 1, 1), args, relocs,
                                    workspace=states, pdl=True))
    return records


@dataclass(frozen=True, slots=True)
class DecodeRule:
    """attention_decode: a block per key head and part of its keys."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if problem.outputs[0].size == 0:
            return []
        return decode_records(attention_call(problem), variant, device)

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        found = []
        for dtype in ("f16", "bf16"):
            found += [
                attention_problem(dtype, (1, 8, 1, 128), groups=2, keys=4096, length="i32",
                                  lse=True),
                attention_problem(dtype, (2, 4, 3, 64), groups=1, keys=400, causal=True,
                                  length="i64", side_by_side=True),
                attention_problem(dtype, (1, 2, 1, 256), keys=70, mask=dtype),
                attention_problem(dtype, (1, 8, 2, 80), value=96, groups=1, keys=300, lse=True,
                                  left=200, score=alibi(dtype), extras=(slopes("f32", 8),)),
                attention_problem(dtype, (2, 16, 1, 192), groups=1, keys=129, mask="bool",
                                  mask_shape=(2, 1, 1, 129)),
            ]
        return found


DECODE_RULES: dict[str, LaunchRule] = {"attention.decode": DecodeRule()}
