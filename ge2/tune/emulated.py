"""Times on the emulator: the cost model's, with a little seeded noise.

The kernels run for the check and are right or wrong there as on a GPU; how long they would take is
nothing that an emulator can tell, so a search on it exercises everything but the clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from ..compiler.kernels.cost import predict
from ..compiler.kernels.metadata import Variant
from ..evidence.costmodel import CostModel


class EmulatedClock:
    """Makes timers that know each variant's predicted time.

    Args:
        bench: whose problem is timed.
        noise: relative standard deviation.
    """

    def __init__(self, bench: Any, noise: float) -> None:
        self._bench = bench
        self._model = CostModel(bench.device.profile)
        self._noise = noise

    def __call__(self, variant: Variant) -> _Timer:
        time_us = predict(self._bench.problem, variant, self._model).time_us
        return _Timer(time_us, random.Random(variant.id), self._noise)


class _Timer:
    def __init__(self, time_us: float, draw: random.Random, noise: float) -> None:
        self._time_us = time_us
        self._draw = draw
        self._noise = noise

    def batch(self, launches: Sequence[Callable[[int], object]], capture: bool
              ) -> Callable[[], None]:
        """Return a call that does nothing but knows how many launches it stands for."""
        return _Batch(len(launches))

    def time(self, batches: Sequence[Any]) -> list[float]:
        """Return predicted microseconds of each batch."""
        return [batch.count * self._time_us * (1 + self._draw.gauss(0.0, self._noise))
                for batch in batches]


class _Batch:
    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self) -> None:
        return None
