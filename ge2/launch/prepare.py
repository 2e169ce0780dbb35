"""Where other forms of inputs go: into the workspace, or into buffers that outlive the call.

A launch rule says of a launch that it does no more than write one input in another form, such as
planes of a matrix or lines of filters (LaunchRecord.prepares). Where the input is constant, that
launch need not run in every call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from ..compiler.ir.size import Size, larger
from .record import WORKSPACE, LaunchRecord, Reloc, SizedBytes, prepared

ALIGNMENT = 256

Places = Mapping[int, tuple[int, int]]
"""Slot -> the slot and the byte offset that take its place."""


def place(records: Sequence[LaunchRecord], constant: Collection[int], first: int
          ) -> list[LaunchRecord]:
    """Return a rule's launches with the buffers of prepared() in their places.

    Args:
        records: all launches of a problem.
        constant: inputs whose other forms get buffers of their own: to the launches that compute
            they are the slots first, first + 1, ... in the order of the launches that write them.
            Those are launches of two buffers, the input and its other form; only they still say
            `prepares`. All other forms lie in the workspace.
        first: the slot behind the outputs.
    """
    if all(record.prepares < 0 for record in records):
        return list(records)
    places: dict[int, tuple[int, int]] = {}
    alone: set[int] = set()
    end = reduce(larger, dict.fromkeys(record.workspace for record in records))
    for record in records:
        if record.prepares < 0:
            continue
        if record.prepares in constant and _is_fixed(record):
            places[prepared(record.prepares)] = first + len(alone), 0
            alone.add(record.prepares)
        else:
            end = aligned(end)
            places[prepared(record.prepares)] = WORKSPACE, end
            end += record.prepared
    return [_moved(record, {record.prepares: (0, 0), prepared(record.prepares): (1, 0)})
            if record.prepares in alone
            else replace(_moved(record, places), workspace=end, prepares=-1, prepared=0)
            for record in records]


def _is_fixed(record: LaunchRecord) -> bool:
    """Whether a launch is the same for all sizes, and there is anything to launch."""
    sizes = isinstance(record.args, SizedBytes) and record.args.patches
    return all(record.grid) and not sizes and not any(
        isinstance(number, Size) for number in (*record.grid, record.prepared))


def _moved(record: LaunchRecord, places: Places) -> LaunchRecord:
    """Return the record with other slots."""
    def placed(slot: int, addend: int) -> tuple[int, int]:
        place, begin = places.get(slot, (slot, 0))
        return place, addend + begin

    relocs = tuple(Reloc(r.offset, *placed(r.slot, r.addend)) for r in record.relocs)
    maps = []
    for spec in record.tensor_maps:
        slot, addend = placed(spec.slot, spec.addend)
        maps.append(spec._replace(slot=slot, addend=addend))
    return replace(record, relocs=relocs, tensor_maps=tuple(maps))


def aligned(end: int) -> int:
    """Return the next offset that a buffer may begin at."""
    return -(-end // ALIGNMENT) * ALIGNMENT
