"""Launch rules of the attention kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..contract import DTYPES
from ..problem import Problem
from .attention_call import AttentionCall, attention_call
from .attention_decode import DECODE_RULES
from .attention_examples import examples_for
from .attention_wgmma import WgmmaAttentionRule
from .record import LaunchRecord
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

ALIGNMENT_SLACK = 1024  # ge2::shared_memory() rounds its base up to this
MOST_SHARED = 227 * 1024  # what a block of any GPU has at most


def simt_shared_bytes(variant: Variant, call: AttentionCall) -> int:
    """Return the shared memory of a block of SimtAttention: q, k, v and weights."""
    itemsize = DTYPES[DTYPES[call.q.dtype].compute].itemsize
    width, tile = 16 // itemsize, int(variant.param("BM"))
    head, value = (-(-n // width) for n in (call.size, call.value_size))
    chunks = 2 * tile * (head | 1) + tile * value + tile * (tile // width | 1)
    return 16 * chunks + ALIGNMENT_SLACK


@dataclass(frozen=True, slots=True)
class SimtRule:
    """attention_simt: a block per tile of queries of a head."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        call = attention_call(problem)
        if problem.outputs[0].size == 0 and problem.outputs[-1].size == 0:
            return []
        rows = int(variant.param("BM"))
        threads = 128 if rows >= 16 else 64
        width = 16 // DTYPES[DTYPES[call.q.dtype].compute].itemsize
        fits = all(x.vector(n, (width,)) == width for x, n in (
            (call.q, call.size), (call.k, call.size), (call.v, call.value_size)))
        args, relocs = call.pack()
        source = call.source(variant, {"THREADS": threads, "VEC": width if fits else 1})
        return [LaunchRecord(source, (call.tiles(rows), 1, 1), (threads, 1, 1), args, relocs,
                             smem=simt_shared_bytes(variant, call))]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [p for p in examples_for(("f32", "f64", "f16", "bf16"))
                if simt_shared_bytes(variant, attention_call(p)) <= MOST_SHARED]


RULES: dict[str, LaunchRule] = {
    "attention.simt": SimtRule(),
    "attention.wgmma": WgmmaAttentionRule(),
    **DECODE_RULES,
}
