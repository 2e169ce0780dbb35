"""Cost evidence: the sweep of each family, checked and timed, as records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ..errors import LaunchFailed
from ..evidence.device import DeviceProfile
from ..evidence.keys import problem_key
from ..evidence.measure import Timer
from ..evidence.record import Record
from ..evidence.records import Store
from ..problem import Problem
from ..runtime.device import Device
from ..tune.bench import Bench, Checked, Way
from ..tune.describe import Describer
from . import conditions, costs, sweep
from .primitives import FAMILIES
from .realizations import Realization, realizations

ROUNDS = 9


@dataclass(slots=True)
class Progress:
    """How far a run got: records written, taken from an earlier run, and left out for time."""

    measured: int = 0
    resumed: int = 0
    failed: int = 0
    left: int = 0


def run(device: Device, store: Store, families: Iterable[str], *, seconds: float = 600.0,
        rounds: int = ROUNDS, both: bool = False, timer: Callable[[], Timer] | None = None,
        problems: Callable[[str], Sequence[Problem]] | None = None,
        tell: Callable[[str], None] = lambda _: None) -> Progress:
    """Measure the sweep; every problem is written at once, so that a run can be broken off.

    Args:
        device: where. store: takes the records.
        seconds: after which no further problem is begun.
        rounds: samples per realization.
        both: time with hot caches, too.
        timer: stands in for the GPU's events.
        problems: of a family, instead of its sweep.
        tell: told each problem.
    """
    ends = time.monotonic() + seconds
    bench = Bench(device, bind=conditions.bind)
    if timer is not None:
        make = timer
        bench.use_clock(lambda _: make())
    emulated = device.kind != "cuda"
    describer = Describer(device.profile, None if emulated else device.index, emulated=emulated,
                          bind=conditions.bind, axes=costs.of_variant)
    progress = Progress()
    found = {f: realizations(f, device.profile.arch) for f in families}
    swept = {f: list(problems(f) if problems else sweep.SWEEP[f]()) for f in found}
    todo: list[tuple[str, Problem, list[Way]]] = []
    for family, problem in _in_turn(swept):
        own = candidates(family, problem, found[family])
        new = [one for one in own if not _known(store, describer, problem, one)]
        progress.resumed += len(own) - len(new)
        if new:
            todo.append((family, problem, new))
    if seconds > 0:
        conditions.compile_ahead(device, ((p, one) for _, p, new in todo for one in new))
    for family, problem, new in todo:
        if time.monotonic() > ends:
            progress.left += len(new)
            continue
        tell(f"{family}: {sweep.label(problem)}")
        _one_problem(bench, describer, store, problem, new, rounds, both, progress)
    return progress


def _in_turn(problems: Mapping[str, Sequence[Problem]]) -> Iterator[tuple[str, Problem]]:
    """Yield all problems so that a run that is cut short has seen something of each family."""
    places = [((index + 0.5) / len(group), family, index)
              for family, group in problems.items() for index in range(len(group))]
    for _, family, index in sorted(places):
        yield family, problems[family][index]


def candidates(family: str, problem: Problem, found: Sequence[Realization]) -> list[Way]:
    """Return what solves a problem: realizations, and some of them under conditions, too."""
    own: list[Way] = [one.variant for one in found if one.serves(problem)]
    if conditions.is_restricted(family, problem):
        own += [other for one in own for other in conditions.restricted(one)]
    return own


def _known(store: Store, describer: Describer, problem: Problem, one: Way) -> bool:
    """Whether a record of the same sources says how fast it is, or that it does not work."""
    records = store.records(problem=problem_key(problem), device=describer.key)
    digest = describer.sources(problem, one)
    return any(r.variant == one.id and r.sources == digest
               and (r.time_us > 0 or not r.is_ok) for r in records)


def _one_problem(bench: Bench, describer: Describer, store: Store, problem: Problem,
                 todo: Sequence[Way], rounds: int, both: bool,
                 progress: Progress) -> None:
    bench.load(problem, seed=1)
    checked: dict[str, Checked] = {}
    for one in todo:
        checked[one.id] = bench.check(one)
        if checked[one.id].fatal:
            store.put(describer.record(problem, one, checked[one.id], None))
            raise unusable(one, checked[one.id])
    right = [one for one in todo if checked[one.id].state == "ok"]
    timings = bench.measure(right, rounds=rounds, seed=0) if right else {}
    hot = (bench.measure(right, rounds=max(rounds // 2, 3), seed=1, cold=False)
           if right and both and bench.is_cold() else {})
    for one in todo:
        name = one.id
        record = describer.record(problem, one, checked[name], timings.get(name))
        if name in hot:
            record = msgspec.structs.replace(record, other_us=hot[name].median)
        store.put(record)
        progress.measured += record.is_ok
        progress.failed += not record.is_ok


def unusable(one: Way, checked: Checked) -> LaunchFailed:
    """Return the error of a candidate after which nothing else can run in this process."""
    return LaunchFailed(f"{one.id} left the device unusable", found=checked.reason,
                        hint="Start again: it is remembered, and the others are run")


def stale(device: DeviceProfile, known: Mapping[tuple[str, str], Record]
          ) -> set[tuple[str, str]]:
    """Return which measurements of the sweep are of other sources than the kernels have now.

    Args:
        known: as newest() returns them. Records that name no sources are taken as current.
    """
    describer = Describer(device, bind=conditions.bind)
    found = set()
    for problem, way in ways(device.arch):
        key = problem_key(problem), way.id
        record = known.get(key)
        if (record is not None and record.sources
                and record.sources != describer.sources(problem, way)):
            found.add(key)
    return found


def ways(arch: str) -> Iterator[tuple[Problem, Way]]:
    """Yield all that is measured on an architecture: the sweep's problems, the sizes between, and
    what solves each."""
    for family in FAMILIES:
        found = realizations(family, arch)
        for problem in (*sweep.SWEEP[family](), *sweep.BETWEEN[family]()):
            for way in candidates(family, problem, found):
                yield problem, way


def newest(records: Iterable[Record], device: str | None = None) -> dict[tuple[str, str], Record]:
    """Return the newest timed record per (problem key, variant id).

    Args:
        device: key; None takes every device's.
    """
    best: dict[tuple[str, str], Record] = {}
    for record in records:
        if record.time_us <= 0 or (device is not None and record.device != device):
            continue
        key = record.problem, record.variant
        if key not in best or record.date >= best[key].date:
            best[key] = record
    return best


__all__ = ["Progress", "candidates", "newest", "run", "stale", "unusable", "ways"]
