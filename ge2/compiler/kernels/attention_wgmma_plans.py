"""Which tile and schedule of the wgmma attention kernel suits a call."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

from ...problem import Problem

if TYPE_CHECKING:
    from ...launch.attention_call import AttentionCall
    from .metadata import Variant

SAMPLES = 32  # tiles of a banded call that are looked at

# Throughput of the blocks that are multiplied, relative to 128 queries by 128 keys scheduled
# within a tile: (plain, banded), for heads of up to 64 and of 80 to 128 elements; by BM, BN,
# OVERLAP and TURNS. From side-by-side runs of the same designs on an H200.
_Speeds = dict[tuple[int | str, ...], tuple[float, float]]
_SHORT_HEADS: _Speeds = {
    (128, 128, "intra", 0): (1.0, 1.0), (128, 128, "flat", 0): (1.01, 1.10),
    (192, 128, "intra", 0): (1.13, 1.13), (192, 128, "intra", 1): (1.16, 1.16),
    (192, 128, "flat", 1): (1.17, 1.19),
}
_LONG_HEADS: _Speeds = {
    (128, 128, "intra", 0): (1.0, 1.0), (128, 128, "flat", 0): (1.006, 1.035),
    (128, 144, "flat", 0): (1.012, 1.03), (128, 160, "intra", 0): (1.045, 1.06),
    (128, 80, "intra", 0): (0.88, 0.88), (128, 64, "intra", 0): (0.83, 0.83),
}
MANY_KEYS = 8192  # banded, from which 144 keys at a time gain
WIDE_GAIN = 1.02
ONE_PASS = 128  # keys that are one block: then only the next tile can be overlapped with
FEW_KEYS = 2048  # below which overlapping tiles costs more than it gains, unless calls are banded
FLAT_LOSS = 0.97


def wgmma_attention_preference(problem: Problem, variant: Variant) -> float:
    """Return points for a call: less for padding, more for a faster tile."""
    from ...launch.attention_call import attention_call
    from ...launch.attention_wgmma import columns_of, tile_of

    call = attention_call(problem)
    columns = columns_of(call)
    if not columns or 0 in (call.queries, call.keys):
        return 0.0
    bm, bn = tile_of(variant)
    # Half-empty tiles are no faster than the smaller ones of other kernels.
    padding = -(-call.queries // 128) * 128 / call.queries
    time = _work(call, bm, bn) / _speed(call, variant, columns)
    return -20.0 * log2(padding) + 30.0 * log2(_work(call, 128, 128) / time)


def _speed(call: AttentionCall, variant: Variant, columns: int) -> float:
    params = variant.param_map
    if columns > 128:
        return 1.0
    key = (params["BM"], params["BN"], params["OVERLAP"], params["TURNS"])
    table = _SHORT_HEADS if columns <= 64 else _LONG_HEADS
    plain, banded = table.get(key, (1.0, 1.0))
    if call.is_banded:
        wide = params["BN"] == 144 and call.keys >= MANY_KEYS
        return banded * WIDE_GAIN if wide else banded
    short = ONE_PASS < call.keys < FEW_KEYS and params["OVERLAP"] == "flat"
    return plain * FLAT_LOSS if short else plain


def _work(call: AttentionCall, bm: int, bn: int) -> float:
    """Return the scores that a head computes, padding and masked ones included."""
    tiles = -(-call.queries // bm)
    if not call.is_banded:
        return float(tiles * bm * -(-call.keys // bn) * bn)
    step = max(1, tiles // SAMPLES)
    blocks = [_blocks(call, tile * bm, bm, bn) for tile in range(0, tiles, step)]
    return sum(blocks) / len(blocks) * tiles * bm * bn


def _blocks(call: AttentionCall, first: int, bm: int, bn: int) -> int:
    last = min(first + bm, call.queries) - 1
    end = min(call.keys, last + call.offset + call.right + 1)
    begin = max(0, first + call.offset - call.left)
    return max(1, -(-end // bn) - begin // bn)
