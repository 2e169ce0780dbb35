"""The lab's evidence for the GPU at hand, in one call that can be repeated until it is whole.

    python -m bench.lab --out FOLDER [--seconds 540] [--only probe,bench,verify,report]

Writes FOLDER/shipped, whose files belong into ge2/evidence/shipped: the device's profile, and an
evidence file with every realization over the sweep. Beside them lab.json (how the cost model does
on sizes that it was not fitted on, how a second probe differs from the first, how long verification
takes) and report.html. What FOLDER has of this device, and what the package has of these very
kernels, is not measured again: where one call left something, call again.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ge2.evidence import profiles
from ge2.evidence.exchange import read_file, shipped, write_file
from ge2.evidence.keys import device_key, problem_key
from ge2.evidence.record import Record
from ge2.evidence.records import Store
from ge2.lab import bench as lab_bench
from ge2.lab import sweep
from ge2.lab.evaluate import evaluate
from ge2.lab.primitives import FAMILIES
from ge2.lab.probe import probe
from ge2.lab.report import page
from ge2.lab.verify import verify
from ge2.runtime.device import Device, cuda_device, default_index

from .results import write_results

PARTS = ("probe", "bench", "verify", "report")
KEPT_EVERY = 30.0  # seconds between two writes of the evidence file
REPORT_SECONDS = 20.0
PROBE_SECONDS = 60.0  # at most
VERIFY_SECONDS = 180.0


class Session:
    """One call: where it writes, until when it measures, what it knows.

    Args:
        device: measured.
        out: folder of the results.
        seconds: of the whole call.
    """

    def __init__(self, device: Device, out: Path, seconds: float) -> None:
        self.device, self.out = device, out
        self.ends = time.monotonic() + seconds
        self.key = device_key(device.profile)
        stem = profiles.file_name(self.key).removesuffix(".json")
        self.evidence = out / "shipped" / f"{stem}-lab.jsonl"
        self.profile = out / "shipped" / f"{stem}.json"
        self.store = Store()
        self.facts = out / "lab.json"
        self.figures: dict[str, Any] = read_figures(self.facts)
        self._kept = 0.0
        self._swept = {(problem_key(problem), way.id)
                       for problem, way in lab_bench.ways(device.profile.arch)}
        self.evidence.parent.mkdir(parents=True, exist_ok=True)
        earlier = read_file(self.evidence) if self.evidence.exists() else []
        known = (*shipped(), *earlier)
        self.store.put(*(r for r in known if isinstance(r, Record) and self._is_mine(r)))
        self.figures["known_before"] = len(self.records())

    def _is_mine(self, record: Record) -> bool:
        """Whether a record is of this device and of what is measured now."""
        return record.device == self.key and (record.problem, record.variant) in self._swept

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.ends - time.monotonic()

    def records(self) -> list[Record]:
        """Return what is known of the sweep on this device: times and failures, the newest each."""
        newest: dict[tuple[str, str], Record] = {}
        for record in sorted(self.store.records(device=self.key), key=lambda r: r.date):
            if self._is_mine(record) and (record.time_us > 0 or not record.is_ok):
                newest[record.problem, record.variant] = record
        return list(newest.values())

    def keep(self, *, now: bool = False) -> None:
        """Write the evidence file, at most every KEPT_EVERY seconds: a call may be cut short."""
        if now or time.monotonic() - self._kept > KEPT_EVERY:
            write_file(self.evidence, self.records())
            self._kept = time.monotonic()

    def measure_device(self) -> None:
        """Probe twice: the first is the profile, the second says how far it repeats."""
        if self.profile.exists():
            first = profiles.read(self.profile)
        else:
            first = probe(self.device, progress=_tell)
            profiles.write(first, self.profile)
        self.figures["probe_seconds"] = first["seconds"]
        if "probe_repeat" in self.figures or self.left() < PROBE_SECONDS:
            return
        again = probe(self.device)["summary"]
        self.figures["probe_repeat"] = {
            name: round(again[name] / value - 1.0, 4)
            for name, value in first["summary"].items() if value}

    def measure_realizations(self) -> None:
        """Run the sweep until time is up."""
        def tell(what: str) -> None:
            _tell(what)
            self.keep()

        start = time.monotonic()
        found = lab_bench.Progress()
        for problems in (sweep.SWEEP, sweep.BETWEEN):
            part = lab_bench.run(
                self.device, self.store, FAMILIES, both=problems is sweep.SWEEP, tell=tell,
                seconds=max(self.left() - REPORT_SECONDS, 0.0),
                problems=lambda family, problems=problems: problems[family]())
            found = lab_bench.Progress(*(getattr(found, name) + getattr(part, name)
                                         for name in ("measured", "resumed", "failed", "left")))
        self.keep(now=True)
        if found.measured or found.failed or found.left or "bench" not in self.figures:
            self.figures["bench"] = {
                "seconds": round(time.monotonic() - start, 1), "measured": found.measured,
                "resumed": found.resumed, "failed": found.failed, "left": found.left}

    def check_realizations(self) -> None:
        """Verify every realization on the sweep, too, as `ge2 lab verify --all` does."""
        if self.left() < VERIFY_SECONDS + REPORT_SECONDS:
            _tell("no time left to verify: call again")
            return
        start = time.monotonic()
        results = list(verify(self.device, FAMILIES, large=True, put=self.store.put))
        self.figures["verify"] = {
            "seconds": round(time.monotonic() - start, 1), "realizations": len(results),
            "wrong": {r.realization.variant.id: r.reason for r in results if not r.is_ok}}

    def report(self) -> None:
        """Judge the cost model and write the page."""
        found = (profiles.read(self.profile) if self.profile.exists()
                 else profiles.load(self.key))
        measured = profiles.with_rates(self.device.profile, found)
        records = self.records()
        self.figures["cost_model"] = [s.as_dict() for s in evaluate(measured, records)]
        (self.out / "report.html").write_text(page(measured, records, found), encoding="utf-8")


def _tell(what: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')}  {what}")


def read_figures(path: Path) -> dict[str, Any]:
    """Return the figures of an earlier call, none where there was none."""
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return found


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True,
              help="Folder of the results.")
@click.option("--seconds", default=540.0, show_default=True, help="Of the whole call.")
@click.option("--only", default=",".join(PARTS), show_default=True, help="Comma list of parts.")
def main(out: Path, seconds: float, only: str) -> None:
    """Run the parts that are asked for; what was measured is kept whatever happens."""
    session = Session(cuda_device(default_index()), out, seconds)
    steps: dict[str, Callable[[], None]] = {
        "probe": session.measure_device, "bench": session.measure_realizations,
        "verify": session.check_realizations, "report": session.report}
    unknown = set(only.split(",")) - set(steps)
    if unknown:
        raise click.UsageError(f"no such part: {', '.join(sorted(unknown))}; "
                               f"there are {', '.join(steps)}")
    failed = []
    for name in (name for name in PARTS if name in only.split(",")):
        if session.left() <= 0 and name != "report":
            continue
        _tell(name)
        try:
            steps[name]()
        except Exception:  # a driver's error, too: the other parts go on, what there is is kept
            traceback.print_exc()
            failed.append(name)
        session.keep(now=True)
        write_results(session.facts, session.figures)
    left = session.figures.get("bench", {}).get("left", 0)
    click.echo(f"{len(session.records())} records in {session.evidence}, "
               f"{left} left for another call")
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
