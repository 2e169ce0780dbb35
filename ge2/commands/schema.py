"""ge2 schema: the JSON Schema of model files."""

from __future__ import annotations

import click

from .output import to_json


@click.command()
def schema() -> None:
    """Print the JSON Schema of model.json, for editors and validators."""
    from ..model.schema import json_schema

    click.echo(to_json(json_schema()))
