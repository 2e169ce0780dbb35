"""What the detectors found, with source lines."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import LaunchFailed
from .compiler import NATIVE


@dataclass(frozen=True, slots=True)
class Frame:
    """One source position: function, file, line."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One detected fault.

    Attributes:
        kind: "out of bounds", "data race", "uninitialised read", "missing wait", ...
        message: what happened, with buffer and offset.
        kernel: the entry's name.
        frames: source positions, innermost first; empty when unknown.
        other: source positions of the other access, for races and divergence.
        block, thread: indices, or None where no thread is to blame.
        address: the memory address or shared offset, 0 when there is none.
    """

    kind: str
    message: str
    kernel: str
    frames: tuple[Frame, ...] = ()
    other: tuple[Frame, ...] = ()
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    address: int = 0

    @property
    def line(self) -> int:
        """Innermost source line, 0 when unknown."""
        return self.frames[0].line if self.frames else 0

    def __str__(self) -> str:
        text = f"{self.kind} in {self.kernel}"
        if self.frames:
            text += f" at {self.frames[0]}"
        if self.block is not None and self.thread is not None:
            text += f", block {_triple(self.block)} thread {_triple(self.thread)}"
        if self.address:
            text += f", address 0x{self.address:x}"
        text += f": {self.message}"
        if self.other:
            text += f" (the other at {self.other[0]})"
        if len(self.frames) > 1:
            text += "; called from " + ", ".join(str(f) for f in self.frames[1:6])
        return text


@dataclass(frozen=True, slots=True)
class BankSite:
    """Shared-memory accesses of one source position.

    Attributes:
        frame: where.
        accesses: warp-wide accesses.
        wavefronts: cycles of shared memory they take; ideal: the same without conflicts.
    """

    frame: Frame
    accesses: int
    wavefronts: int
    ideal: int

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond the ideal."""
        return self.wavefronts - self.ideal


@dataclass(frozen=True, slots=True)
class Report:
    """Outcome of one launch.

    Attributes:
        kernel: the entry's name.
        findings: faults, in the order they were seen; empty for a clean launch.
        steps: basic blocks executed by all threads.
        banks: shared-memory traffic per access site, when asked for.
        seed: of a random schedule, 0 for the fixed one.
    """

    kernel: str
    findings: tuple[Finding, ...] = ()
    steps: int = 0
    banks: tuple[BankSite, ...] = field(default=())
    seed: int = 0

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts beyond the ideal, over all sites."""
        return sum(site.conflicts for site in self.banks)


class EmulationError(LaunchFailed):
    """A detector saw a fault; the message lists every finding.

    Attributes:
        report: the launch's report.
    """

    def __init__(self, report: Report) -> None:
        first, *others = report.findings
        text = str(first)
        for finding in others:
            text += f"\n  also: {finding}"
        if report.seed:
            text += f"\n  in the random schedule of seed={report.seed}"
        super().__init__(text)
        self.report = report

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of all findings."""
        return frozenset(f.kind for f in self.report.findings)


def decode(text: str, kernel: str, library: Path, seed: int) -> Report:
    """Turn the runtime's JSON into a Report, resolving program counters to source lines."""
    data = json.loads(text)
    pcs: list[int] = []
    for item in data["findings"]:
        pcs += item["pcs"] + item["other_pcs"]
    pcs += [bank[0] for bank in data["banks"]]
    frames = resolve(library, pcs)
    findings = tuple(_finding(item, kernel, frames) for item in data["findings"])
    banks = tuple(
        BankSite(_first(frames.get(pc, ())), accesses, wavefronts, ideal)
        for pc, accesses, wavefronts, ideal in data["banks"]
    )
    return Report(kernel, findings, int(data["steps"]), banks, seed)


def _finding(item: dict[str, Any], kernel: str,
             frames: dict[int, tuple[Frame, ...]]) -> Finding:
    def chain(pcs: Sequence[int]) -> tuple[Frame, ...]:
        found: list[Frame] = []
        for pc in pcs:
            found += [f for f in frames.get(pc, ()) if f not in found]
        return tuple(found)

    block = tuple(item["block"]) if "block" in item else None
    thread = tuple(item["thread"]) if "thread" in item else None
    return Finding(item["kind"], item["message"], kernel, chain(item["pcs"]),
                   chain(item["other_pcs"]), block, thread, int(item["address"]))


def _first(frames: Sequence[Frame]) -> Frame:
    return frames[0] if frames else Frame("?", "?", 0)


def _triple(values: Sequence[int]) -> str:
    return "(" + ",".join(str(v) for v in values) + ")"


def resolve(library: Path, pcs: Sequence[int]) -> dict[int, tuple[Frame, ...]]:
    """Return the source positions of return addresses, without those inside twins.

    Needs addr2line (binutils, which comes with the compiler); without it nothing is resolved.
    """
    tool = shutil.which("addr2line")
    unique = sorted({pc for pc in pcs if pc})
    if not unique or tool is None:
        return {}
    # A return address is one past the call.
    arguments = [f"0x{pc - 1:x}" for pc in unique]
    done = subprocess.run([tool, "-a", "-i", "-f", "-C", "-e", str(library), *arguments],
                          capture_output=True, text=True, check=False)
    result: dict[int, tuple[Frame, ...]] = {}
    current: list[Frame] = []
    function = ""
    for line in done.stdout.splitlines():
        if line.startswith("0x") and ":" not in line:
            current = []
            result_key = int(line, 16) + 1
            result[result_key] = ()
            function = ""
        elif not function:
            function = line
        else:
            frame = _frame(function, line)
            if frame is not None:
                current.append(frame)
                result[result_key] = tuple(current)
            function = ""
    return result


def _frame(function: str, position: str) -> Frame | None:
    position = position.partition(" (discriminator")[0]
    file, _, line = position.rpartition(":")
    if not line.isdigit() or file.startswith(str(NATIVE)) or file.endswith("entry.cpp"):
        return None
    path = Path(file)
    parts = path.parts
    shown = path.name
    if "ge2" in parts and path.suffix == ".cuh":
        shown = "/".join(parts[len(parts) - 1 - parts[::-1].index("ge2"):])
    return Frame(function, shown, int(line))
