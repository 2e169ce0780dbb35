"""ge2 lab bench, evaluate, report: what realizations cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .lab_catalog import families_of, lab_records
from .output import Number, Report, report_options, writable_file

if TYPE_CHECKING:
    from ..evidence.device import DeviceProfile
    from ..evidence.record import Record


@click.command()
@click.argument("family", nargs=-1)
@click.option("--seconds", type=Number(min=0), default=600.0, show_default=True,
              help="Begin no problem after that.")
@click.option("--rounds", default=9, show_default=True, help="Samples per realization.")
@click.option("--hot", is_flag=True, help="Time with operands in L2, too.")
@click.option("--between", is_flag=True, help="Sizes between those of the sweep: what ge2 lab "
              "evaluate judges the cost model on.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              callback=writable_file,
              help="Write the records of this device as an evidence file, too.")
@report_options
def bench(family: tuple[str, ...], seconds: float, rounds: int, hot: bool, between: bool,
          output: Path | None, json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Measure every realization over the sweep; needs a GPU.

    Each problem is written when it is done: a run that was broken off goes on where it stopped.
    """
    from ..evidence.exchange import write_file
    from ..evidence.keys import device_key
    from ..evidence.records import Store, default_path
    from ..lab import bench as lab_bench
    from ..lab import sweep
    from ..runtime.device import cuda_device, default_index

    report = Report(json_target, quiet=quiet, verbose=verbose)
    device = cuda_device(default_index())
    problems = (lambda name: sweep.BETWEEN[name]()) if between else None
    with Store(default_path()) as store:
        progress = lab_bench.run(device, store, families_of(family, False), seconds=seconds,
                                 rounds=rounds, both=hot, tell=report.message,
                                 problems=problems)
        key = device_key(device.profile)
        records = [r for r in store.records(device=key) if r.op_type.startswith("LAB_")]
    if output is not None:
        write_file(output, records)
    report.data = {"device": key, "measured": progress.measured, "resumed": progress.resumed,
                   "failed": progress.failed, "left": progress.left, "records": len(records)}
    report.line(f"{progress.measured} measured, {progress.resumed} known before, "
                f"{progress.failed} failed, {progress.left} left for another run")
    report.finish()


@click.command()
@click.option("--device", "device_name", default="h200", show_default=True,
              help="A GPU's name or part of it, known or of the evidence, or an architecture.")
@click.option("--evidence", "files", multiple=True, type=click.Path(path_type=Path, exists=True),
              help="Evidence files to judge instead of this user's and the shipped ones.")
@report_options
def evaluate(device_name: str, files: tuple[Path, ...], json_target: str | None, quiet: bool,
             verbose: bool) -> None:
    """Judge the cost model on problems that it was not fitted on, by family."""
    from ..evidence import profiles
    from ..evidence.keys import device_key
    from ..lab.bench import newest, stale
    from ..lab.evaluate import evaluate as judge

    report = Report(json_target, quiet=quiet, verbose=verbose)
    records = load(files)
    device = profiles.measured(device_of(device_name, records))
    scores = judge(device, records)
    rows = [s.as_dict() for s in scores]
    older = len(stale(device, newest(records, device_key(device))))
    report.data = {"device": device.name, "families": rows, "older_sources": older}
    report.table(
        ("family", "sizes", "problems", "loss median", "loss p90", "error median", "error p90"),
        [(r["family"], "between" if r["held_out"] else "of the sweep", r["problems"],
          *_figures(r, "problems", "loss"), *_figures(r, "times", "error")) for r in rows],
        right=frozenset({2, 3, 4, 5, 6}))
    if older:
        report.message(f"{older} measurements are of older sources of their kernels; ge2 lab bench "
                       "measures these again")
    if not any(s.errors for s in scores):
        report.message(f"no evidence of {device.name}; ge2 lab bench makes some")
    report.finish()


def _figures(row: Mapping[str, Any], count: str, name: str) -> tuple[str, str]:
    """Return median and 90th percentile as text; a dash each where nothing was judged."""
    return tuple(f"{100 * row[f'{name}_{part}']:.1f} %" if row[count] else "-"
                 for part in ("median", "p90"))  # type: ignore[return-value]


@click.command("report")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              callback=writable_file,
              default=Path("report.html"), show_default=True)
@click.option("--device", "device_name", default="h200", show_default=True,
              help="A GPU's name or part of it, known or of the evidence, or an architecture.")
@click.option("--evidence", "files", multiple=True, type=click.Path(path_type=Path, exists=True),
              help="Evidence files to show instead of this user's and the shipped ones.")
@click.option("--png", type=click.Path(path_type=Path, file_okay=False),
              help="Write the figures into this folder, too; needs pip install 'ge2[plot]'.")
@report_options
def report_(output: Path, device_name: str, files: tuple[Path, ...], png: Path | None,
            json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Write one HTML page: what each realization costs, where the winner changes, and why."""
    from ..errors import Invalid
    from ..evidence import profiles
    from ..evidence.keys import device_key
    from ..lab.report import figures, page
    from ..lab.report_png import write_figures

    report = Report(json_target, quiet=quiet, verbose=verbose)
    records = load(files)
    device = profiles.measured(device_of(device_name, records))
    profile = profiles.load(device_key(device))
    text = page(device, records, profile)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{output} cannot be written", found=error.strerror) from error
    drawn = write_figures(figures(device, records, profile), png) if png else []
    report.data = {"file": str(output), "bytes": len(text), "png": list(map(str, drawn))}
    report.message(f"wrote {output}" + (f" and {len(drawn)} figures in {png}" if png else ""))
    report.finish()


def device_of(name: str, records: Iterable[Record]) -> DeviceProfile:
    """Return the device that a name stands for: one that evidence is of, else one that ge2 knows.

    Raises:
        Invalid: no device has this name, or several have.
    """
    from ..evidence import profiles
    from ..evidence.device import find_profile

    found = {key: device for key in {r.device for r in records}
             if name.lower() in key.lower() and (device := profiles.of_key(key)) is not None}
    return next(iter(found.values())) if len(found) == 1 else find_profile(name)


def load(files: tuple[Path, ...]) -> list[Any]:
    """Return the lab's records from files, else this user's and the shipped ones.

    Raises:
        EvidenceError: a file is foreign, cut or newer.
    """
    if not files:
        return lab_records()
    from ..evidence.exchange import read_file
    from ..evidence.record import Record

    return [item for path in files for item in read_file(path)
            if isinstance(item, Record) and item.op_type.startswith("LAB_")]
