"""A device that keeps what it is asked to launch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from ge2.evidence.device import DeviceProfile, profile_for
from ge2.launch.patch import Args
from ge2.launch.record import LaunchRecord, TensorMapSpec
from ge2.runtime.device import Allocation, Unit


def encode_map(spec: TensorMapSpec, address: int) -> bytes:
    return address.to_bytes(8, "little") * 16


@dataclass
class FakeUnit:
    record: LaunchRecord
    device: FakeDevice
    args: Args = field(init=False)
    grid: tuple[int, int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.args = Args(self.record, encode_map)
        self.grid = self.record.grid

    def resize(self, grid: tuple[int, int, int]) -> None:
        self.grid = grid

    def __call__(self, stream: int, /) -> None:
        if self.device.launch_error is not None:
            raise self.device.launch_error
        self.device.launched.append((self.record, self.args.tobytes(), stream))


class FakeDevice:
    """Attributes set by tests: errors to raise, addresses that are not its own."""

    kind = "fake"
    index = 0

    def __init__(self, arch: str = "sm_90a") -> None:
        self.profile: DeviceProfile = profile_for(arch)
        self.launched: list[tuple[LaunchRecord, bytes, int]] = []
        self.prepared: list[LaunchRecord] = []
        self.allocated: list[int] = []
        self.launch_error: Exception | None = None
        self.compile_error: Exception | None = None
        self.memory_error: Exception | None = None
        self.foreign: set[int] = set()
        self._next = 1 << 40

    def active(self) -> AbstractContextManager[None]:
        return nullcontext()

    def prepare(self, records: Sequence[LaunchRecord]) -> list[Unit]:
        if self.compile_error is not None:
            raise self.compile_error
        self.prepared += records
        return [FakeUnit(record, self) for record in records]

    def allocate(self, nbytes: int, *, zero: bool = False) -> Allocation:
        if self.memory_error is not None:
            raise self.memory_error
        self._next += 1 << 20
        self.allocated.append(nbytes)
        return Allocation(self._next, nbytes, lambda address: None)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        raise AssertionError("nothing to copy")

    def owns(self, address: int) -> bool:
        return address not in self.foreign

    def synchronize(self, stream: int) -> None:
        pass

    def is_capturing(self, stream: int) -> bool:
        return False
