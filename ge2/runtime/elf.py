"""The few facts ge2 reads from a cubin, which is a 64-bit ELF file, without a driver."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_MAGIC = b"\x7fELF\x02\x01"
_SYMTAB = 2
_NOBITS = 8


class BadElf(ValueError):
    """The bytes are no 64-bit little-endian ELF file, or are cut."""


@dataclass(frozen=True, slots=True)
class _Section:
    name: int
    kind: int
    offset: int
    size: int
    link: int


def _header(code: bytes) -> tuple[int, int, int, int, int, int]:
    if len(code) < 64 or not code.startswith(_MAGIC):
        raise BadElf(f"no cubin: {len(code)} bytes, starts with {code[:4]!r}")
    program_offset, section_offset = struct.unpack_from("<QQ", code, 0x20)
    program_size, programs, section_size, sections = struct.unpack_from("<HHHH", code, 0x36)
    return program_offset, program_size, programs, section_offset, section_size, sections


def _sections(code: bytes) -> Iterator[_Section]:
    _, _, _, offset, size, count = _header(code)
    for index in range(count):
        try:
            name, kind, _, _, start, length, link = struct.unpack_from(
                "<IIQQQQI", code, offset + index * size)
        except struct.error as error:
            raise BadElf("section table is cut") from error
        yield _Section(name, kind, start, length, link)


def file_size(code: bytes) -> int:
    """Return how long the file must be for its tables and sections to fit.

    Raises:
        BadElf: no ELF header, or the section table is cut.
    """
    program_offset, program_size, programs, section_offset, section_size, sections = _header(code)
    ends = [program_offset + program_size * programs, section_offset + section_size * sections]
    ends += [s.offset + s.size for s in _sections(code) if s.kind != _NOBITS]
    return max(ends)


def read_u32(code: bytes, symbol: str) -> int | None:
    """Return the initial value of a 32-bit global variable, or None where there is none.

    Raises:
        BadElf: the file is no ELF file or cut.
    """
    sections = list(_sections(code))
    wanted = symbol.encode()
    for table in (s for s in sections if s.kind == _SYMTAB):
        names = sections[table.link]
        for at in range(table.offset, table.offset + table.size, 24):
            try:
                name, _, _, index, value, _ = struct.unpack_from("<IBBHQQ", code, at)
            except struct.error as error:
                raise BadElf("symbol table is cut") from error
            start = names.offset + name
            if code[start : start + len(wanted) + 1] == wanted + b"\0" and index < len(sections):
                return _word(code, sections[index], value)
    return None


def _word(code: bytes, section: _Section, value: int) -> int:
    """Return a variable's word; a variable of value 0 lies in a section without bytes."""
    if section.kind == _NOBITS:
        return 0
    word: int = struct.unpack_from("<I", code, section.offset + value)[0]
    return word
