"""ge2 check: validate model files without running them."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ..errors import Ge2Error
from .output import Report, bad, counted, good, human_bytes, report_options


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="MODEL...")
@report_options
def check(paths: tuple[str, ...], json_target: str | None, quiet: bool, verbose: bool) -> int:
    """Validate model files, their weights and their samples; needs no GPU.

    Every file is looked at; the exit code is 3 when one of them is bad.
    """
    from ..model import load

    report = Report(json_target, quiet=quiet, verbose=verbose)
    failed = 0
    files = []
    for path in paths:
        start = time.perf_counter()
        try:
            model = load(Path(path))
        except Ge2Error as error:
            failed += 1
            report.line(f"{bad('bad')}  {error}")
            files.append({"path": path, "ok": False, "error": str(error)})
            continue
        seconds = time.perf_counter() - start
        graph = model.graph
        size = sum(array.nbytes for array in graph.constants.values())
        report.line(f"{good('ok')}   {path}: {graph.name}, "
                    f"{counted(len(graph.nodes), 'node')}, "
                    f"{counted(len(graph.constants), 'weight')} ({human_bytes(size)})")
        for name, kind in model.inputs.items():
            report.line(f"       input  {name}: {kind}")
        for name in model.outputs:
            report.line(f"       output {name}: {graph.types[name]}")
        for value, state in graph.aliases.items():
            report.line(f"       state  {state}: {graph.types[state]} <- {value}")
        files.append({
            "path": path, "ok": True, "name": graph.name, "nodes": len(graph.nodes),
            "weights": len(graph.constants), "weight_bytes": size, "seconds": seconds,
            "inputs": {n: str(t) for n, t in model.inputs.items()},
            "outputs": {n: str(graph.types[n]) for n in model.outputs},
            "sample": model.sample is not None})
    report.data = {"files": files}
    report.finish()
    return 3 if failed else 0
