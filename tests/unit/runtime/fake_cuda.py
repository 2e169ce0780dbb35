"""The executor's CUDA path without CUDA: what graphs, events and captures are asked is kept."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from ge2.runtime import bound, driver, executor, memory, weights

from .fake_device import FakeDevice, FakeUnit


class FakeGraph:
    """Keeps the argument bytes of each node; launch appends all of them to the device's log."""

    def __init__(self, units: Sequence[FakeUnit]) -> None:
        self.units = units
        self.args = [unit.args.tobytes() for unit in units]
        self.updates = 0

    def update(self, index: int) -> None:
        self.args[index] = self.units[index].args.tobytes()
        self.updates += 1

    def launch(self, stream: int) -> None:
        device = self.units[0].device
        if device.launch_error is not None:
            raise device.launch_error
        device.launched += [(u.record, a, stream) for u, a in zip(self.units, self.args,
                                                                  strict=True)]


@dataclass
class FakeCuda(FakeDevice):
    """Attributes: finished events, streams that capture, streams that were held, copies."""

    kind = "cuda"
    finished: bool = False
    capturing: set[int] = field(default_factory=set)
    waits: list[int] = field(default_factory=list)
    copies: list[tuple[int, int, int]] = field(default_factory=list)
    kept: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        FakeDevice.__init__(self)

    def is_capturing(self, stream: int) -> bool:
        return stream in self.capturing

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.copies.append((target, source, nbytes))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """A FakeCuda that the runtime's driver calls go to."""
    device = FakeCuda()
    monkeypatch.setattr(driver, "enter_device", lambda index: None)
    monkeypatch.setattr(driver, "leave_device", lambda previous: None)
    monkeypatch.setattr(driver, "Event", lambda: SimpleNamespace(
        record=lambda stream: None, is_done=lambda: device.finished, hold=device.waits.append,
        wait=lambda: None))
    monkeypatch.setattr(driver, "stream_create", lambda: 99)
    monkeypatch.setattr(driver, "relaxed_capture", nullcontext)
    monkeypatch.setattr(bound, "KernelGraph", FakeGraph)
    monkeypatch.setattr(weights, "_own_stream", lambda device: nullcontext(99))
    monkeypatch.setattr(weights, "_upload", lambda device, address, dense: None)
    monkeypatch.setattr(executor, "keep_with_capture",
                        lambda stream, owned: device.kept.append(owned))
    monkeypatch.setattr(memory, "keep_with_capture",
                        lambda stream, owned: device.kept.append(owned))
    return device


class FakeArray:
    """Looks like a CuPy array at an address that nobody reads."""

    def __init__(self, address: int, *shape: int, strides: tuple[int, ...] | None = None,
                 device: int = 0, dtype: str = "f4") -> None:
        self.dtype = np.dtype(dtype)
        self.shape = shape
        self.strides = strides or np.empty(shape, dtype).strides
        self.data = SimpleNamespace(ptr=address, device_id=device)


FakeArray.__module__ = "cupy.fake"
