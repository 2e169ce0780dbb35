"""How products that normalise their rows are spread over a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.size import larger, smaller

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile

RESERVED = 1024  # bytes of shared memory that the system takes for each block


def block_groups(rows: int, columns: int, smem: int, device: DeviceProfile) -> int:
    """Return how many blocks share the rows of a tile: as many as find room on the device.

    Each normalises the rows for itself and takes every so manieth of their tiles.

    Args:
        rows, columns: tiles of the output along both axes.
        smem: bytes of a block.
    """
    resident = max(1, min(8, device.smem_per_sm // (smem + RESERVED)))
    groups = smaller(columns, larger(1, resident * device.sm_count // rows))
    share = -(-columns // groups)
    return -(-columns // share)  # no block without a tile
