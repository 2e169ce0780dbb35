"""Devices that launch records run on, and what a real GPU's profile is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .. import config, paths
from ..compiler.ir.size import as_example
from ..errors import EnvironmentUnusable, Invalid
from ..evidence.device import DeviceProfile, arch_of, capabilities, profile_for
from ..launch.patch import Args
from ..launch.record import LaunchRecord
from . import driver

if TYPE_CHECKING:
    from .emulate import Memory

# Shares of the theoretical peak that a copy reaches; measured on an H200.
_COPY_SHARE = 0.9


class Unit(Protocol):
    """One launchable record; not for two threads at once."""

    args: Args
    record: LaunchRecord
    grid: tuple[int, int, int]

    def resize(self, grid: tuple[int, int, int]) -> None:
        """Launch with another grid from now on."""
        ...

    def __call__(self, stream: int, /) -> None:
        """Launch on a stream with the addresses patched last."""
        ...


class Allocation:
    """Memory that is released when the object goes."""

    __slots__ = ("_release", "address", "nbytes")

    def __init__(self, address: int, nbytes: int, release: Callable[[int], None]) -> None:
        self.address = address
        self.nbytes = nbytes
        self._release = release

    def __del__(self) -> None:
        self._release(self.address)


class Device(Protocol):
    """Where records run: a GPU, or the host through the emulator."""

    kind: str
    index: int
    profile: DeviceProfile

    def active(self) -> AbstractContextManager[None]:
        """Make the device current in the calling thread for a block."""
        ...

    def prepare(self, records: Sequence[LaunchRecord]) -> list[Unit]:
        """Compile what is missing and return one unit per record."""
        ...

    def allocate(self, nbytes: int, *, zero: bool = False) -> Allocation:
        """Return memory aligned to 256 bytes."""
        ...

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy between device addresses or host and device."""
        ...

    def owns(self, address: int) -> bool:
        """Whether kernels on this device can use an address."""
        ...

    def synchronize(self, stream: int) -> None:
        """Wait for the stream."""
        ...

    def is_capturing(self, stream: int) -> bool:
        """Whether the stream is being captured into a graph."""
        ...


class CudaDevice:
    """One NVIDIA GPU.

    Raises:
        EnvironmentUnusable: there is no driver or no such GPU.
    """

    kind = "cuda"

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.profile = probe(index)

    def active(self) -> AbstractContextManager[None]:
        """Make the device's primary context current for a block."""
        return driver.on_device(self.index)

    def prepare(self, records: Sequence[LaunchRecord]) -> list[Unit]:
        """Compile what is missing (in parallel), load it and return one unit per record."""
        from . import jit

        jit.compile(_distinct(record.kernel for record in records), self.profile.arch)
        with self.active():
            return [driver.Launch(record, jit.load(record.kernel, self.index))
                    for record in records]

    def allocate(self, nbytes: int, *, zero: bool = False) -> Allocation:
        """Return device memory; zeroed memory is ready on return."""
        with self.active():
            address = driver.allocate(nbytes)
            if zero:
                driver.fill_zero(address, nbytes)
        return Allocation(address, nbytes, driver.release_quietly)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Enqueue a copy on a stream."""
        if nbytes:
            driver.copy_async(target, source, nbytes, stream)

    def owns(self, address: int) -> bool:
        """Whether the address is memory of this GPU."""
        return driver.pointer_device(address) == self.index

    def synchronize(self, stream: int) -> None:
        """Wait for the stream; a kernel's fault surfaces here."""
        driver.stream_synchronize(stream)

    def is_capturing(self, stream: int) -> bool:
        """Whether the stream is being captured into a graph."""
        return driver.is_capturing(stream)


def _distinct(sources: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(sources))


@cache
def cuda_device(index: int) -> CudaDevice:
    """Return the (one) object of a GPU."""
    paths.let_cupy_start()
    return CudaDevice(index)


def default_index() -> int:
    """Return GE2_DEVICE.

    Raises:
        Invalid: it is not a whole number.
    """
    text = config.get("GE2_DEVICE")
    if not text.isdecimal():
        raise Invalid("GE2_DEVICE has a bad value", argument="GE2_DEVICE", found=repr(text),
                      wanted="a device index such as 0")
    return int(text)


def default_backend() -> str:
    """Return GE2_BACKEND, else "cuda" where a GPU and cupy are, else "cpu"."""
    chosen = config.get("GE2_BACKEND")
    if chosen:
        return chosen
    from importlib.util import find_spec

    return "cuda" if driver.is_available() and find_spec("cupy") else "cpu"


@cache
def probe(index: int = 0) -> DeviceProfile:
    """Return the profile of a GPU from what the driver reports.

    The arithmetic peaks scale the architecture's table row by multiprocessors; the copy rate comes
    from the memory clock and bus width where the driver still tells them.

    Raises:
        EnvironmentUnusable: there is no such GPU.
    """
    count = driver.device_count()
    if index >= count:
        raise EnvironmentUnusable("there is no such GPU", argument="device", found=index,
                                  wanted=f"0 to {count - 1}" if count else "a machine with a GPU")
    api = driver.api()
    device = driver.check(api.cuDeviceGet(index))

    def ask(name: str) -> int:
        kind = getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(driver.check(api.cuDeviceGetAttribute(kind, device)))

    arch = arch_of(ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR"))
    typical = profile_for(arch)
    sms = ask("MULTIPROCESSOR_COUNT")
    share = sms / typical.sm_count
    name = driver.check(api.cuDeviceGetName(128, device)).split(b"\0")[0].decode()
    peak = 2e3 * ask("MEMORY_CLOCK_RATE") * ask("GLOBAL_MEMORY_BUS_WIDTH") / 8 / 1e9
    return DeviceProfile(
        name, arch, sms, ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        ask("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"), ask("L2_CACHE_SIZE"),
        ask("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        _COPY_SHARE * peak if peak else typical.copy_gbps,
        share * typical.fp32_tflops, share * typical.tensor_tflops, caps=capabilities(arch))


class EmulatedDevice:
    """The host: the same records through the emulator, on exact-size host buffers.

    Args:
        arch: the architecture whose kernels are run.
    """

    kind = "emulate"
    index = 0

    def __init__(self, arch: str = "sm_90a") -> None:
        self.profile = profile_for(arch)
        self._live: dict[int, tuple[np.ndarray[Any, Any], int]] = {}

    def active(self) -> AbstractContextManager[None]:
        """Nothing to do on the host."""
        from contextlib import nullcontext

        return nullcontext()

    def prepare(self, records: Sequence[LaunchRecord]) -> list[Unit]:
        """Return one unit per record; the emulator compiles at the first launch."""
        return [EmulatedUnit(record, self) for record in records]

    def allocate(self, nbytes: int, *, zero: bool = False) -> Allocation:
        """Return host memory; bytes are 0xCB unless zeroed, so that a missing write shows."""
        storage = np.full(nbytes + 256, 0 if zero else 0xCB, np.uint8)
        address = storage.ctypes.data + (-storage.ctypes.data % 256)
        self._live[address] = (storage, nbytes)
        return Allocation(address, nbytes, self._drop)

    def _drop(self, address: int) -> None:
        self._live.pop(address, None)

    def copy(self, target: int, source: int, nbytes: int, _stream: int) -> None:
        """Copy at once."""
        import ctypes

        ctypes.memmove(target, source, nbytes)

    def owns(self, address: int) -> bool:
        """Every host address will do."""
        return address != 0

    def ranges(self) -> list[tuple[int, int]]:
        """Return (address, bytes) of all live allocations."""
        return [(address, nbytes) for address, (_, nbytes) in self._live.items()]

    def synchronize(self, _stream: int) -> None:
        """Launches are finished when they return."""

    def is_capturing(self, _stream: int) -> bool:
        """There are no streams to capture."""
        return False


class EmulatedUnit:
    """One record on the emulator.

    Attributes:
        memory: what the kernel may touch: ranges or a Memory; None for every allocation.
        report: what the emulator said of the last launch.
    """

    def __init__(self, record: LaunchRecord, device: EmulatedDevice) -> None:
        from . import emulate

        self.record = record
        self.grid: tuple[int, int, int] = as_example(record.grid)
        self.args = Args(record, emulate.encode_tensor_map)
        self.memory: Memory | Sequence[tuple[int, int]] | None = None
        self.report: Any = None
        self._device = device
        self._emulate = emulate

    def resize(self, grid: tuple[int, int, int]) -> None:
        """Launch with another grid from now on."""
        self.grid = grid
        self.record = replace(self.record, grid=grid)

    def __call__(self, _stream: int, /) -> None:
        """Run the kernel.

        Raises:
            EmulationError: a detector fired.
        """
        memory = self._device.ranges() if self.memory is None else self.memory
        self.report = self._emulate.launch(self.record, self.args.tobytes(), memory=memory,
                                           arch=self._device.profile.arch)
