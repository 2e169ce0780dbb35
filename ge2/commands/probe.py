"""ge2 probe: measure how this GPU answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .output import Report, report_options, writable_file


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              callback=writable_file,
              help="Write the profile there instead of where ge2 looks for it.")
@click.option("--device", "index", type=int, default=None, help="GPU to measure.")
@report_options
def probe(output: Path | None, index: int | None, json_target: str | None, quiet: bool,
          verbose: bool) -> None:
    """Measure this GPU: bandwidths, latencies, rates, and what waiting costs.

    Takes less than a minute and writes one JSON file, which the cost model
    reads. Needs a GPU.
    """
    from ..evidence import profiles
    from ..lab.probe import probe as measure
    from ..runtime.device import cuda_device, default_index

    report = Report(json_target, quiet=quiet, verbose=verbose)
    device = cuda_device(default_index() if index is None else index)
    document = measure(device, progress=lambda name: report.message(f"measuring {name}"))
    path = profiles.write(document, output)
    report.data = document
    _show(report, document)
    report.message(f"wrote {path} after {document['seconds']:.0f} s")
    report.finish()


def _show(report: Report, document: dict[str, Any]) -> None:
    report.line(document["device"].replace("|", "  "))
    report.table(("figure", "measured"), [
        (name.replace("_", " "), f"{value:g}") for name, value in document["summary"].items()],
        right=frozenset({1}))
    if not report.verbose:
        return
    for name, points in document["sections"].items():
        report.line()
        report.table((name, "value", "us", "spread %"), [
            (_place(point), f"{point['value']:g} {point['value_unit']}",
             f"{point['time_us']:g}", f"{100 * point['spread']:.1f}") for point in points],
            right=frozenset({1, 2, 3}))


def _place(point: dict[str, Any]) -> str:
    measured = ("value", "value_unit", "spread", "time_us")
    return " ".join(f"{key}={value}" for key, value in point.items() if key not in measured)
