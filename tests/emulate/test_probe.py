"""The probe's kernels on the emulator: no detector speaks, and every curve has its points."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ge2.evidence.measure import Enqueue
from ge2.lab.probe import probe
from ge2.lab.probe_cases import Sizes
from ge2.runtime.device import EmulatedDevice


class OneTime:
    """Runs everything and says that it took as long as a sample should."""

    def batch(self, launches: Sequence[Enqueue], capture: bool) -> Callable[[], None]:
        def enqueue() -> None:
            for launch in launches:
                launch(0)

        return enqueue

    def time(self, batches: Sequence[Callable[[], None]]) -> list[float]:
        for batch in batches:
            batch()
        return [700.0] * len(batches)


def test_every_point_runs_clean_and_gets_a_value() -> None:
    device = EmulatedDevice("sm_90a")
    device.profile = dataclasses.replace(device.profile, sm_count=1, l2_bytes=1 << 17)
    found = probe(device, sizes=Sizes(large=1 << 19, turns=4, steps=8), timer=OneTime(), rounds=1)
    assert set(found["sections"]) == {"size", "l2", "in flight", "occupancy", "tile shape",
                                      "stride", "staging", "latency", "shared", "rate", "launch",
                                      "barrier"}
    assert all(p["value"] > 0 for points in found["sections"].values() for p in points)
    assert all(value > 0 for value in found["summary"].values())
