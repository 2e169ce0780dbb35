"""ge2 env: every GE2_* variable, its value and where that comes from."""

from __future__ import annotations

import os

import click

from .. import config
from .output import Report, report_options


@click.command()
@report_options
def env(json_target: str | None, quiet: bool, verbose: bool) -> None:
    """List every GE2_* variable, its value, its source and its meaning."""
    report = Report(json_target, quiet=quiet, verbose=verbose)
    rows = []
    for variable in config.VARIABLES.values():
        source = "environment" if os.environ.get(variable.name) else "default"
        value = config.get(variable.name)
        choices = ", ".join(c for c in variable.choices if c)
        meaning = f"{variable.doc} ({choices})" if choices else variable.doc
        rows.append((variable.name, value or "-", source, meaning))
        report.data[variable.name] = {
            "value": value, "source": source, "default": variable.default,
            "choices": list(variable.choices), "doc": variable.doc}
    report.table(("variable", "value", "source", "meaning"), rows)
    report.finish()
