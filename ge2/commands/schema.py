"""ge2 schema: the JSON Schema of model files."""

from __future__ import annotations

import click

from .output import Report, report_options, to_json


@click.command()
@report_options
def schema(json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Print the JSON Schema of model.json, for editors and validators."""
    from ..model.schema import json_schema

    report = Report(json_target, quiet=quiet, verbose=verbose)
    report.data = json_schema()
    if json_target is None:
        report.line(to_json(report.data))
    report.finish()
