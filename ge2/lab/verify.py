"""Verification of realizations: every element against float64, on the emulator or a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..evidence.record import FAILED_STATES, Record
from ..problem import Problem
from ..runtime.device import Device
from ..tune.bench import Bench
from ..tune.describe import Describer
from . import conditions, costs, plans, sweep
from .bench import unusable
from .primitives import FAMILIES
from .realizations import Realization, realizations


@dataclass(frozen=True, slots=True)
class Result:
    """What verifying one realization found.

    Attributes:
        realization: what was verified. state: "ok", or that of the first problem that failed.
        reason: of it, in words. problems: how many were run. max_abs, ulp: largest errors.
    """

    realization: Realization
    state: str
    reason: str
    problems: int
    max_abs: float
    ulp: float

    @property
    def is_ok(self) -> bool:
        """Whether every problem came out right."""
        return self.state == "ok"


def verify(device: Device, families: Iterable[str], *, large: bool = False, only: str = "",
           put: Callable[[Record], None] = lambda _: None) -> Iterator[Result]:
    """Yield what became of each realization.

    Args:
        device: GPU or emulator.
        families: names.
        large: the sweep's problems, too; for GPUs.
        only: a header's or choice's name; other realizations are left out.
        put: takes a record per realization and problem; what failed is known from then on.
    """
    bench = Bench(device, bind=plans.bind)
    emulated = device.kind != "cuda"
    describer = Describer(device.profile, None if emulated else device.index, emulated=emulated,
                          bind=plans.bind, axes=costs.of_variant)
    found = {family: [one for one in realizations(family, device.profile.arch)
                      if not only or only in one.name.split("/")] for family in families}
    problems = {family: sweep.VERIFY[family]() + (sweep.SWEEP[family]() if large else [])
                for family in found}
    conditions.compile_ahead(device, ((problem, one.variant) for family in found
                                      for problem in problems[family] for one in found[family]
                                      if one.serves(problem)))
    for family in found:
        yield from _family(bench, describer, found[family], problems[family], put)


def _family(bench: Bench, describer: Describer, found: Sequence[Realization],
            problems: Iterable[Problem], put: Callable[[Record], None]) -> Iterator[Result]:
    worst: dict[str, Result] = {}
    for problem in problems:
        serving = [one for one in found if one.serves(problem)]
        if serving:
            bench.load(problem, seed=1)
        for one in serving:
            seen = worst.get(one.variant.id)
            if seen is not None and not seen.is_ok:
                continue
            checked = bench.check(one.variant)
            put(describer.record(problem, one.variant, checked, None))
            if checked.fatal:
                raise unusable(one.variant, checked)
            before = seen or Result(one, "ok", "", 0, 0.0, 0.0)
            reason = f"{sweep.label(problem)}: {checked.reason}" if checked.reason else ""
            worst[one.variant.id] = Result(
                one, checked.state, reason, before.problems + 1,
                max(before.max_abs, checked.max_abs), max(before.ulp, checked.ulp))
    yield from worst.values()


def offered(family: str, records: Iterable[Record], arch: str = "") -> list[Realization]:
    """Return the realizations of a family that no record says to be wrong.

    What failed anywhere, on an emulator or on a GPU, is left out until its sources change.

    Args:
        records: of verification and measurement.
    """
    failed = {(r.variant, r.sources) for r in records if r.state in FAILED_STATES}
    return [one for one in realizations(family, arch)
            if not any((one.variant.id, digest) in failed for digest in _digests(one, failed))]


def _digests(one: Realization, failed: set[tuple[str, str]]) -> list[str]:
    """Return the source digests of a realization on the problems that something failed on."""
    if not any(variant == one.variant.id for variant, _ in failed):
        return []
    from ..evidence.device import profile_for

    describer = Describer(profile_for("sm_90a"), bind=plans.bind)
    family = one.family.name
    return [describer.sources(p, one.variant)
            for problems in (sweep.VERIFY, sweep.SWEEP, sweep.BETWEEN)
            for p in problems[family]() if one.serves(p)]


def names() -> list[str]:
    """Return the families, in the catalog's order."""
    return list(FAMILIES)
