"""Launch rules of the attention kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..contract import DTYPES
from ..problem import Problem
from .attention_call import AttentionCall, attention_call
from .attention_decode import DECODE_RULES
from .attention_examples import examples_for
from .attention_grad import GRADIENT_RULES
from .attention_grad_wgmma import GRADIENT_WGMMA_RULES
from .attention_paged import PAGED_RULES
from .attention_wgmma import WgmmaAttentionRule
from .gemm_source import cpp
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


def simt_refusal(variant: Variant, call: AttentionCall) -> str:
    """Return why a variant cannot serve a call; empty where it can."""
    words = DTYPES[DTYPES[call.q.dtype].compute].itemsize // 4
    rows = max(int(variant.param("BM")) // 16, 1)
    if rows * -(-call.value_size // 8) * words > 64:
        return "the sums of a thread's rows do not fit into registers"
    return ""


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
                             smem=simt_shared_bytes(variant, call), pdl=True)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [p for p in examples_for(("f32", "f64", "f16", "bf16"))
                if simt_shared_bytes(variant, attention_call(p)) <= MOST_SHARED
                and not simt_refusal(variant, attention_call(p))]


def mma_shared_bytes(variant: Variant, call: AttentionCall) -> int:
    """Return the shared memory of a block of attention_mma: queries or results, two stages."""
    rows, keys = int(variant.param("BM")), int(variant.param("BN"))
    head, value = (-(-n // 16) * 32 + 16 for n in (call.size, call.value_size))  # bytes of a row
    return rows * max(head, value) + 2 * keys * (head + value) + ALIGNMENT_SLACK


def mma_refusal(variant: Variant, call: AttentionCall) -> str:
    """Return why a variant cannot serve a call; empty where it can."""
    if int(variant.param("BM")) == 128 and max(call.size, call.value_size) > 64:
        return "sums of 128 queries of heads above 64 do not fit into registers"
    if int(variant.param("BN")) == 64 and max(call.size, call.value_size) > 128:
        return "scores of 64 keys do not fit into registers beside heads above 128"
    if int(variant.param("BN")) == 16 and max(call.size, call.value_size) <= 128:
        return "tiles of 16 keys are for heads above 128, of which more do not always fit"
    return ""


@dataclass(frozen=True, slots=True)
class MmaRule:
    """attention_mma: a block per tile of queries of a head."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        call = attention_call(problem)
        if problem.outputs[0].size == 0 and problem.outputs[-1].size == 0:
            return []
        rows = int(variant.param("BM"))
        widths = {"VEC_Q": (call.q, call.size, (8, 4, 2)), "VEC_K": (call.k, call.size, (8, 4, 2)),
                  "VEC_V": (call.v, call.value_size, (8, 4, 2)),
                  "VEC_Y": (call.y, call.value_size, (8,))}
        source = call.source(variant, {
            "ASYNC": cpp(device.caps["async_copy"]),
            **{name: x.vector(size, choices) for name, (x, size, choices) in widths.items()}})
        args, relocs = call.pack()
        return [LaunchRecord(source, (call.tiles(rows), 1, 1),
                             (128, 1, 1), args, relocs, smem=mma_shared_bytes(variant, call),
                             pdl=True)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [p for p in examples_for(("f16", "bf16"))
                if not mma_refusal(variant, attention_call(p))]


RULES: dict[str, LaunchRule] = {
    "attention.simt": SimtRule(),
    "attention.mma": MmaRule(),
    "attention.wgmma": WgmmaAttentionRule(),
    **DECODE_RULES,
    **GRADIENT_RULES,
    **GRADIENT_WGMMA_RULES,
    **PAGED_RULES,
}
