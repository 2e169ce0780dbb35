"""Choosing kernels by evidence: what runs use of a tuning database or a lock file, and why.

Evidence decides where it is of this GPU model, this driver and these very kernels. Another driver
makes it a hint, which still decides and says so; another GPU or another cubin never decides.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from .. import config, launch_table, log
from ..compiler.kernels import registry, selector
from ..compiler.kernels.metadata import Variant
from ..compiler.kernels.selector import Basis, CandidateReport, Choice
from ..errors import Ge2Error, ModelError
from ..evidence import versions
from ..evidence.device import DeviceProfile
from ..evidence.exchange import shipped
from ..evidence.keys import device_key, problem_key
from ..evidence.lockfile import Lock, Pinned, read_lock
from ..evidence.record import Decision
from ..evidence.records import open_default
from ..problem import Problem
from . import nvrtc
from .digests import compiled_digest, distinct_sources, source_digest

MODES = ("on", "off", "pinned")


class TunedChooser:
    """A selector that prefers evidence. Reads it once, so that a model's choices do not change.

    Args:
        mode: "on", "off" or "pinned"; None takes GE2_TUNE.
        lock: the lock file that "pinned" takes.

    Attributes:
        mode: as given.
        digest: of the evidence that choices can come from; "" without any.
        outputs: operator and shape of the first output of each problem with evidence: a quick way
            to see that there is none for others.

    Raises:
        ModelError: pinned, and there is no lock file.
    """

    def __init__(self, mode: str | None = None, lock: Path | None = None) -> None:
        self.mode = mode or config.get("GE2_TUNE")
        self.outputs: set[tuple[str, tuple[int, ...]]] = set()
        self._decisions: dict[str, list[Decision]] = {}
        self._lock: Lock | None = None
        self._pinned: dict[str, Pinned] = {}
        self._choices: dict[tuple[Problem, DeviceProfile, int], Choice] = {}
        if self.mode == "pinned":
            if lock is None:
                raise ModelError("a pinned run needs a model file with a lock file beside it",
                                 hint="ge2 tune pin MODEL writes it")
            self._lock = read_lock(lock)
            self._pinned = self._lock.by_problem()
        elif self.mode == "on":
            for decision in _all_decisions():
                self._decisions.setdefault(decision.problem, []).append(decision)
                self.outputs.add((decision.op_type, _first_output(decision.shape)))
        self.digest = self._digest()

    def __call__(self, problem: Problem, device: DeviceProfile) -> Choice:
        """Return the variant for a problem.

        Raises:
            NoKernelError: nothing serves it.
            ModelError: what is pinned no longer exists or computes in another order.
        """
        if not self._decisions and self._lock is None:
            return selector.select(problem, device)
        key = problem, device, registry.generation()
        choice = self._choices.get(key)
        if choice is None:
            plain = selector.select(problem, device)
            choice = self._choices[key] = (
                self._by_lock(problem, device, plain) if self._lock
                else self._by_evidence(problem, device, plain))
        return choice

    # -- evidence -----------------------------------------------------------------------------

    def _by_evidence(self, problem: Problem, device: DeviceProfile, plain: Choice) -> Choice:
        passed_over = []
        found = self._decisions.get(problem_key(problem), ())
        for decision in sorted(found, key=lambda d: -d.date):
            kind, note = self._judge(decision, problem, device, plain.reports)
            if kind:
                return self._choice(decision, kind, note, plain)
            passed_over.append(note)
        if not passed_over:
            return plain
        return Choice(plain.variant, plain.score, plain.reports,
                      Basis("rules", "; ".join(passed_over)))

    def _judge(self, decision: Decision, problem: Problem, device: DeviceProfile,
               reports: tuple[CandidateReport, ...]) -> tuple[str, str]:
        """Return the kind of basis that a decision is, "" for none, and a note."""
        what = f"{decision.variant}, measured {age(decision.date)}"
        if decision.device != device_key(device):
            return "", f"not used, of another GPU ({decision.device}): {what}"
        if not _is_legal(decision.variant, reports):
            return "", f"not used, no longer a candidate: {what}"
        variant = registry.variant(decision.variant)
        if not same_kernels(problem, variant, device, decision):
            return "", f"stale, the kernel has changed: {what}"
        driver = versions.driver_version()
        if decision.driver != driver:
            return "hint", f"measured {age(decision.date)} with driver " \
                           f"{decision.driver or 'unknown'}, here is {driver or 'none'}"
        return "tuned", f"measured {age(decision.date)}"

    @staticmethod
    def _choice(decision: Decision, kind: str, note: str, plain: Choice) -> Choice:
        report = next(r for r in plain.reports if r.variant_id == decision.variant)
        gained = (f"{100 * decision.gain:+.1f} % ± {100 * decision.noise:.1f} over the default, "
                  f"{decision.valid} of {decision.space} candidates measured")
        basis = Basis(kind, f"{note}; {gained}", decision.date, decision.gain, decision.noise)
        log.topic("select").info("%s by evidence: %s", decision.variant, basis.note)
        return Choice(registry.variant(decision.variant), report.score or 0.0, plain.reports, basis)

    # -- lock files ---------------------------------------------------------------------------

    def _by_lock(self, problem: Problem, device: DeviceProfile, plain: Choice) -> Choice:
        assert self._lock is not None
        pinned = self._pinned.get(problem_key(problem))
        if pinned is None:
            return Choice(plain.variant, plain.score, plain.reports,
                          Basis("rules", "not in the lock file"))
        if not _is_legal(pinned.variant, plain.reports):
            raise ModelError(f"the pinned kernel {pinned.variant} is no candidate here",
                             hint="Pin again with ge2 tune pin MODEL, or run without --tuning "
                                  "pinned")
        variant = registry.variant(pinned.variant)
        if variant.numerics != pinned.numerics:
            raise ModelError(f"the pinned kernel {pinned.variant} now computes in another order",
                             found=variant.numerics, wanted=pinned.numerics,
                             hint="Pin again with ge2 tune pin MODEL")
        report = next(r for r in plain.reports if r.variant_id == pinned.variant)
        where = "" if self._lock.device == device_key(device) else f" for {self._lock.device}"
        note = f"pinned{where}" + (f", measured {age(pinned.date)}" if pinned.tuned else "")
        return Choice(variant, report.score or 0.0, plain.reports,
                      Basis("pinned", note, pinned.date, pinned.margin))

    def _digest(self) -> str:
        parts = [f"{d.problem} {d.device} {d.variant} {d.cubin}"
                 for group in self._decisions.values() for d in group]
        parts += [f"{p.problem} {p.variant} {p.cubin}" for p in self._pinned.values()]
        if not parts:
            return ""
        return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:12]


@cache
def _chooser_of(mode: str, folder: str) -> TunedChooser:
    return TunedChooser(mode)


def default_chooser() -> TunedChooser:
    """Return the chooser of calls that belong to no model: GE2_TUNE on or off.

    Evidence is read when the first such call of the process asks.
    """
    mode = "off" if config.get("GE2_TUNE") == "off" else "on"
    return _chooser_of(mode, config.get("GE2_DATA_DIR"))


def _all_decisions() -> Iterable[Decision]:
    yield from (item for item in shipped() if isinstance(item, Decision))
    store = open_default()
    if store is not None:
        with store:
            yield from (d for d in store.decisions() if not d.device.startswith("emulated "))


def _first_output(shape: str) -> tuple[int, ...]:
    """Return the first output's extents in what keys.shape_text says."""
    found = re.search(r"\[([\d,]*)\]", shape.rpartition("->")[2])
    return tuple(int(n) for n in found[1].split(",") if n) if found else ()


def _is_legal(variant_id: str, reports: Iterable[CandidateReport]) -> bool:
    return any(r.variant_id == variant_id and r.score is not None for r in reports)


def same_kernels(problem: Problem, variant: Variant, device: DeviceProfile,
                 decision: Decision) -> bool:
    """Whether a variant's kernels are those that a decision was measured with.

    Equal sources and compilers answer without compiling; else the cubins are compared.
    """
    try:
        records = launch_table.bind(problem, variant, device)
        sources = distinct_sources(records)
        if decision.sources == source_digest(sources) and decision.nvrtc in ("", compiler()):
            return True
        return decision.cubin == compiled_digest(sources, device.arch)
    except Ge2Error as error:
        log.topic("select").info("%s cannot be compared with its evidence: %s", variant.id, error)
        return False


def compiler() -> str:
    """Return NVRTC's version as records hold it; "" where there is none."""
    try:
        return ".".join(map(str, nvrtc.version()))
    except Ge2Error:
        return ""


def age(date: float) -> str:
    """Return how long ago a date is, for a person."""
    seconds = max(time.time() - date, 0.0)
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"
