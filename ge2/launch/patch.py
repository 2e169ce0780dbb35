"""Filling the address holes of launch records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any

import numpy as np

from .record import SEMAPHORES, WORKSPACE, LaunchRecord, Reloc, TensorMapSpec

EncodeMap = Callable[[TensorMapSpec, int], bytes]
Get = Callable[[tuple[int, ...]], tuple[int, ...]]

ARGS_ALIGN = 64


class Args:
    """The Args struct of one launch in memory that kernels can be launched from.

    Attributes:
        record: what it belongs to.
        address: host address of the struct, a multiple of 64.
    """

    __slots__ = ("_bytes", "_encode", "_encoded", "_holes", "_maps", "_storage", "_words",
                 "address", "record")

    def __init__(self, record: LaunchRecord, encode: EncodeMap) -> None:
        size = -(-max(len(record.args), 8) // 8) * 8
        storage = np.zeros(size + ARGS_ALIGN, np.uint8)
        start = -storage.ctypes.data % ARGS_ALIGN
        self._storage: np.ndarray[Any, Any] = storage[start:start + size]
        self._storage[: len(record.args)] = np.frombuffer(record.args, np.uint8)
        self._bytes = self._storage.data
        self._words = self._bytes.cast("Q")
        self._holes = [(reloc.offset // 8, reloc.slot, reloc.addend) for reloc in record.relocs]
        self._maps = record.tensor_maps
        self._encode = encode
        # Of each tensor map, what stands in the struct: weights keep theirs from size to size.
        self._encoded: list[tuple[TensorMapSpec | None, int]] = [(None, 0)] * len(self._maps)
        self.record = record
        self.address: int = self._storage.ctypes.data

    def patch(self, addresses: Sequence[int], workspace: int = 0, semaphores: int = 0) -> None:
        """Write the addresses of buffers, workspace and semaphores; an absent buffer stays 0."""
        words = self._words
        for index, slot, addend in self._holes:
            base = addresses[slot] if slot >= 0 else (
                workspace if slot == WORKSPACE else semaphores)
            words[index] = base + addend if base else 0
        for index, spec in enumerate(self._maps):
            base = (addresses[spec.slot] if spec.slot >= 0 else workspace) + spec.addend
            known, address = self._encoded[index]
            if known is not spec or address != base:
                self._bytes[spec.offset:spec.offset + 128] = self._encode(spec, base)
                self._encoded[index] = spec, base

    def resize(self, numbers: tuple[int, ...], fields: Iterable[tuple[int, Struct, Get]],
               addends: Get | None, maps: tuple[TensorMapSpec, ...]) -> None:
        """Write what differs at another size; patch() has to follow.

        Args:
            numbers: all numbers of that size.
            fields: (byte offset, layout, numbers to write there).
            addends: of the relocations, where they differ.
            maps: the tensor maps.
        """
        for offset, layout, get in fields:
            layout.pack_into(self._bytes, offset, *get(numbers))
        if addends is not None:
            self._holes = [(index, slot, addend) for (index, slot, _), addend in zip(
                self._holes, addends(numbers), strict=True)]
        self._maps = maps

    def holes(self, slot: int) -> list[tuple[memoryview[int], int, int]] | None:
        """Return (words, index, addend) of every word that holds a slot's address.

        A caller may write address + addend there itself. None where the slot also has a tensor
        map, which only patch can fill.
        """
        if any(spec.slot == slot for spec in self._maps):
            return None
        return [(self._words, index, addend) for index, s, addend in self._holes if s == slot]

    @property
    def maps(self) -> tuple[TensorMapSpec, ...]:
        """The tensor maps at the present size."""
        return self._maps

    def relocs(self) -> tuple[Reloc, ...]:
        """Return the address holes at the present size."""
        return tuple(Reloc(8 * index, slot, addend) for index, slot, addend in self._holes)

    def tobytes(self) -> bytes:
        """Return the struct's bytes as patched last."""
        return self._bytes[: len(self.record.args)].tobytes()


def slots_of(record: LaunchRecord) -> frozenset[int]:
    """Return the slots whose addresses the record's args depend on."""
    return frozenset([*(r.slot for r in record.relocs), *(m.slot for m in record.tensor_maps)])


__all__ = ["ARGS_ALIGN", "SEMAPHORES", "WORKSPACE", "Args", "EncodeMap", "slots_of"]
