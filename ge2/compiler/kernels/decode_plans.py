"""How much of the device, and so which blocks, suit attention of few queries over many keys."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

from ...contract import DTYPES

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile
    from ...launch.attention_call import AttentionCall
    from .metadata import Variant

MEMORY_BOUND = 30.0  # points ahead of kernels whose tiles hold many queries, for up to
FEW_ROWS = 16  # query rows of a key head; as many behind them for more
POINTS = 12.0  # for each factor of two in time
# Microseconds, measured on an H200 with cold keys: a launch with its first and last bytes, and what
# each block that shares keys adds.
START = 3.0
MERGE = 0.1
WAVE = 0.5  # a wave's blocks start when those of the one before are through; not measured


def decode_preference(call: AttentionCall, variant: Variant, device: DeviceProfile) -> float:
    """Return points by predicted time: keys and values are read once, in waves of blocks.

    Key heads of many query rows are read again for each group of rows.
    """
    from ...launch.attention_decode import decode_plan

    plan = decode_plan(variant, call, device)
    nbytes = (call.batch * call.groups * call.keys * (call.size + call.value_size)
              * DTYPES[call.k.dtype].itemsize)
    stream = max(nbytes, 1) / (device.copy_gbps * 1e3)
    again = plan.shares // max(call.batch * call.groups, 1)
    waves = -(-plan.shares * plan.splits // plan.slots)
    uneven = waves * plan.slots / (plan.shares * plan.splits)
    time = (START + stream * again * uneven + WAVE * (waves - 1)
            + MERGE * (plan.splits - 1))
    ahead = MEMORY_BOUND if plan.total <= FEW_ROWS else -MEMORY_BOUND
    return ahead - POINTS * log2(time / (START + stream))
