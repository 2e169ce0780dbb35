"""Launch records: binding as plain data, shared by every way of launching a kernel.

Every kernel takes exactly one by-value parameter, its Args struct. A record holds that struct's
bytes with holes for addresses; whoever launches fills the holes and passes one pointer. The plain
launcher, the executor, CUDA graphs, the emulator and tuning all use the same records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..compiler.ir.size import Size, as_example, is_tracing

WORKSPACE = -1
SEMAPHORES = -2
_PREPARED = -3


@dataclass(frozen=True, slots=True)
class KernelSource:
    """One compilable unit: a template and the constants that it is rendered with.

    Attributes:
        template: path below kernels/ ("gemm/gemm_bias_act_f32_tiled.cu.j2").
        context: sorted (name, value) pairs for the template; values are str, int, float, bool or
            tuples of those. Together with the template they decide the cubin.
        entry: name of the extern "C" function.
        options: for the compiler, beyond the usual ones.
    """

    template: str
    context: tuple[tuple[str, Any], ...]
    entry: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reloc:
    """An address hole: 8 bytes at offset take the address of slot plus addend bytes.

    slot counts buffers in contract order (inputs, outputs); WORKSPACE, SEMAPHORES and those of
    prepared() are negative.
    """

    offset: int
    slot: int
    addend: int = 0


class TensorMapSpec(NamedTuple):
    """A TMA descriptor hole: 128 bytes at offset (a multiple of 64).

    Attributes:
        offset: byte offset in the args.
        slot, addend: base address, as in Reloc.
        dtype: IR element type, or "tf32": f32 elements that loads round to tf32.
        dims: extents, innermost first.
        strides: byte strides of dims[1:] (multiples of 16).
        box: tile extents, innermost first.
        swizzle: 0, 32, 64 or 128 bytes.
    """

    offset: int
    slot: int
    addend: int
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """One kernel launch without its addresses.

    Attributes:
        kernel: what to compile.
        grid, block, cluster: extents; a grid with a zero extent is not launched.
        smem: dynamic shared memory in bytes.
        args: bytes of the Args struct.
        relocs, tensor_maps: the holes in args.
        workspace: bytes of scratch memory needed (shared by all records of one bind).
        semaphores: 32-bit words, zero at entry, that the kernel leaves zero at exit.
        pdl: launch with programmatic stream serialisation: the grid may start while those before
            it still run, and waits for them before it writes anything, or reads anything but
            `early`; at least one thread of it waits. launch_table.bind drops it where the device
            has none.
        early: slots of buffers that a pdl launch may read before that; launch_table.bind drops pdl
            unless these are said to be constant.
        cooperative: all blocks run at the same time, so that they may wait for each other; the grid
            fits on the device at once.
        prepares: the one input that the launch reads, to write it in another form into the buffer
            prepared(prepares); -1 for launches that compute. Where that input is constant, such a
            launch runs once instead of in every call, see prepare.py.
        prepared: bytes of that buffer.
        carveout: percent of a multiprocessor's cache that is to be shared memory; -1 leaves it to
            the driver. It stays with the loaded kernel: records that differ in it differ in kernel.
    """

    kernel: KernelSource
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: bytes
    relocs: tuple[Reloc, ...]
    smem: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    tensor_maps: tuple[TensorMapSpec, ...] = ()
    workspace: int = 0
    semaphores: int = 0
    pdl: bool = False
    early: tuple[int, ...] = ()
    cooperative: bool = False
    prepares: int = -1
    prepared: int = 0
    carveout: int = -1


def prepared(slot: int) -> int:
    """Return the slot of the buffer that a launch writes another form of an input into.

    It is its own inverse; of any slot that is no such buffer it is negative.
    """
    return _PREPARED - slot


@dataclass(slots=True)
class ArgsBuilder:
    """Packs one Args struct from values and addresses by field name.

    The NumPy dtype is the host's description of the struct; rendered kernels hold a static_assert
    for its size and every offset (see args_checks).
    """

    dtype: np.dtype[Any]
    values: Mapping[str, Any]
    addresses: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def pack(self) -> tuple[bytes, tuple[Reloc, ...]]:
        """Return the struct's bytes and its relocations; addresses maps field -> (slot, addend)."""
        block = np.zeros((), self.dtype)
        for name, value in self.values.items():
            _assign(block, name, as_example(value) if is_tracing() else value)
        fields = self.dtype.fields
        assert fields is not None
        relocs = tuple(
            Reloc(int(fields[name][1]), slot, addend)
            for name, (slot, addend) in self.addresses.items()
        )
        if not is_tracing():
            return block.tobytes(), relocs
        return SizedBytes(block.tobytes(), tuple(_sizes(self.dtype, 0, self.values))), relocs


def _assign(block: Any, name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for inner, part in value.items():
            _assign(block[name], inner, part)
    else:
        block[name] = value


_CODES = {"i4": "i", "u4": "I", "i8": "q", "u8": "Q"}


@dataclass(frozen=True, slots=True)
class Patch:
    """A number in an Args struct that depends on named dimensions.

    Attributes:
        offset: in bytes.
        code: its type, as the struct module writes it.
        size: the number.
    """

    offset: int
    code: str
    size: Size


class SizedBytes(bytes):
    """An Args struct of a class of sizes: the bytes at the class's example, and what varies."""

    patches: tuple[Patch, ...]

    def __new__(cls, data: bytes, patches: tuple[Patch, ...]) -> SizedBytes:
        made = super().__new__(cls, data)
        made.patches = patches
        return made


def pack_words(words: Sequence[int]) -> bytes:
    """Return 64-bit words as the bytes of an Args struct."""
    data = struct.pack(f"<{len(words)}q", *words)
    if not is_tracing():
        return data
    return SizedBytes(data, tuple(Patch(8 * i, "q", word) for i, word in enumerate(words)
                                  if isinstance(word, Size)))


def _sizes(dtype: np.dtype[Any], start: int, value: Any) -> Iterator[Patch]:
    """Yield the sizes in a struct, in order of their places."""
    if isinstance(value, Size):
        yield Patch(start, _CODES[dtype.str[1:]], value)
    elif isinstance(value, Mapping):
        assert dtype.fields is not None
        for name, part in value.items():
            inner, offset = dtype.fields[name][:2]
            yield from _sizes(inner, start + int(offset), part)
    elif isinstance(value, tuple | list):
        element = dtype.base if len(dtype.shape) == 1 else np.dtype((dtype.base, dtype.shape[1:]))
        for index, part in enumerate(value):
            yield from _sizes(element, start + index * element.itemsize, part)


def args_dtype(*fields: tuple[Any, ...]) -> np.dtype[Any]:
    """Return a struct dtype laid out as the C++ compiler lays out the same members."""
    return np.dtype(list(fields), align=True)


def args_checks(dtype: np.dtype[Any], struct: str = "Args") -> str:
    """Return C++ static_asserts that pin struct's size and member offsets to dtype."""
    assert dtype.fields is not None
    lines = [f'static_assert(sizeof({struct}) == {dtype.itemsize}, "{struct} size");']
    lines += [
        f'static_assert(offsetof({struct}, {name}) == {entry[1]}, "{struct}.{name}");'
        for name, entry in dtype.fields.items()
    ]
    return "\n".join(lines)
