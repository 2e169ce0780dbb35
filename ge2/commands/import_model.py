"""ge2 import: an ONNX model as a model file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from ..errors import ModelError
from .output import Report, human_bytes, report_options


@click.command("import")
@click.argument("path", metavar="MODEL.onnx")
@click.option("-o", "--output", required=True, metavar="DIR",
              help="Folder for model.json and its weights; made where it is missing.")
@click.option("--sym", "symbols", multiple=True, metavar="NAME=N",
              help="Fix a named dimension; may be repeated. The others stay symbolic.")
@click.option("--constant", "constants", multiple=True, metavar="NAME=FILE",
              help="Fix an input to the array of an .npy file; may be repeated.")
@report_options
def import_model(path: str, output: str, symbols: tuple[str, ...], constants: tuple[str, ...],
                 json_target: str | None, quiet: bool, verbose: bool) -> int:
    """Write an ONNX model as DIR/model.json and its weights; needs the onnx package.

    What ge2 cannot express is listed all at once, with exit code 3.

    \b
    ge2 import model.onnx -o model/
    ge2 import model.onnx -o model/ --sym batch=1
    """
    from ..model.onnx_import import read_onnx
    from ..model.writer import write_model

    report = Report(json_target, quiet=quiet, verbose=verbose)
    made = read_onnx(path, dims=_dims(symbols), constants=_constants(constants))
    for note in made.notes:
        report.message(f"note: {note}")
    target = write_model(made.graph, Path(output) / "model.json")
    graph = made.graph
    size = sum(array.nbytes for array in graph.constants.values())
    report.line(f"{target}: {graph.name}, {len(graph.nodes)} nodes, "
                f"{len(graph.constants)} weights ({human_bytes(size)})")
    for name in graph.inputs:
        report.line(f"  input  {name}: {graph.types[name]}")
    for name in graph.outputs:
        report.line(f"  output {name}: {graph.types[name]}")
    report.data = {
        "model": str(target), "name": graph.name, "notes": list(made.notes),
        "nodes": len(graph.nodes), "operators": dict(Counter(n.op for n in graph.nodes)),
        "weights": len(graph.constants), "weight_bytes": size,
        "inputs": {n: str(graph.types[n]) for n in graph.inputs},
        "outputs": {n: str(graph.types[n]) for n in graph.outputs}}
    report.finish()
    return 0


def _pairs(options: tuple[str, ...], hint: str) -> dict[str, str]:
    made: dict[str, str] = {}
    for option in options:
        name, equals, value = option.rpartition("=")
        if not equals or not name or not value:
            raise click.BadParameter(f"{option!r} is not NAME=VALUE", param_hint=hint)
        if name in made:
            raise click.BadParameter(f"{name!r} is given twice", param_hint=hint)
        made[name] = value
    return made


def _dims(options: tuple[str, ...]) -> dict[str, int]:
    made = {}
    for name, value in _pairs(options, "--sym").items():
        if not value.isdecimal() or len(value) > 15:
            raise click.BadParameter(f"{name}={value} needs a whole number", param_hint="--sym")
        made[name] = int(value)
    return made


def _constants(options: tuple[str, ...]) -> dict[str, Any]:
    from ..model.data import read_array

    made = {}
    for name, value in _pairs(options, "--constant").items():
        if not value.endswith(".npy"):
            raise ModelError(f"{value} cannot be read as a constant", wanted="an .npy file")
        made[name] = read_array(Path(value))
    return made
