"""ge2 explain: passes, launches, chosen and rejected kernels of a model."""

from __future__ import annotations

import click

from .kernel_lookup import known_arch
from .output import Report, report_options
from .run import model_options, open_model, parse_symbols


@click.command()
@click.argument("path", metavar="MODEL")
@model_options
@click.option("--arch", metavar="SM", callback=known_arch,
              help="Plan for this architecture, such as sm_80; needs no "
              "GPU. Default: the GPU that is here, else sm_90a.")
@click.option("--graph", "graphs", is_flag=True, help="Show the graph after each pass.")
@report_options
def explain(path: str, symbols: tuple[str, ...], device: int | None, backend: str | None,
            memory_budget: int | None, tuning: str | None, arch: str | None, graphs: bool,
            json_target: str | None, quiet: bool, verbose: bool) -> int:
    """Show what the compiler does with MODEL; -v lists every candidate with score or refusal.

    Exit code 5 when a node has no kernel.
    """
    report = Report(json_target, quiet=quiet, verbose=verbose)
    model = open_model(path, "cpu" if arch else backend, device, report, tuning,
                       memory_budget)
    result = model.explain(arch=arch, symbols=parse_symbols(symbols, model.symbols))
    report.line(result.text(graphs=graphs, candidates=verbose))
    report.data = result.as_dict()
    report.finish()
    return 5 if result.plan is None else 0
