"""ge2 tune: find, remember and carry the best kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..errors import EnvironmentUnusable, Invalid, near_matches
from .kernel_lookup import known_arch
from .output import Number, Report, report_options
from .tune_records import export, forget, import_, merge, pin, plot, show

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_SECONDS = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


class TuneGroup(click.Group):
    """A group whose default command is `search`: `ge2 tune --op X` needs no word more."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command in front of arguments that name none."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            if args[0].isalpha() and not Path(args[0]).exists():
                close = near_matches(args[0], self.commands)
                raise click.UsageError(f"{args[0]!r} is no command and no model file; "
                                       f"{close or 'see ge2 tune --help'}", ctx)
            args = ["search", *args]
        return super().parse_args(ctx, args)


@click.group(cls=TuneGroup)
def tune() -> None:
    """Measure kernels on this GPU, remember the best; later runs use them.

    Without a command word, searches: see `ge2 tune search --help`.

    \b
    ge2 tune --op GEMM_BIAS_ACT
    ge2 tune --op GEMM_BIAS_ACT --shape M=4096,N=4096,K=4096 --dtype f16
    ge2 tune model.json --sym batch=1,8,32 --budget 60s
    """


class Duration(click.ParamType[float]):
    """Seconds, with a unit: 60s, 5m, 1h, 500ms."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None
                ) -> float:
        """Return seconds."""
        if isinstance(value, int | float):
            return float(value)
        match = _DURATION.fullmatch(value.strip())
        if match is None or float(match[1]) <= 0:
            self.fail(f"{value!r} is not a duration such as 60s, 5m or 1h", param, ctx)
        return float(match[1]) * _SECONDS[match[2] or ""]


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return add


_WHAT = _options(
    click.argument("models", metavar="[MODEL]...", nargs=-1),
    click.option("--op", "ops", multiple=True, metavar="OP",
                 help="An operator: its standard sweep, or --shape. May be repeated."),
    click.option("--all", "everything", is_flag=True, help="Every operator that has variants."),
    click.option("--shape", "shapes", multiple=True, metavar="SHAPE",
                 help="M=..,N=..,K=..[,BATCH=..] of a product; else the operands' extents, such "
                 "as 8192x1024, several separated by ';'. May be repeated."),
    click.option("--shapes", "shape_file", type=click.Path(path_type=Path), metavar="FILE",
                 help="Shapes, one a line or as a JSON list."),
    click.option("--dtype", "dtypes", multiple=True, metavar="DTYPE",
                 help="f32, f16, bf16, ... May be repeated."),
    click.option("--act", default="relu", show_default=True, help="Activation of products."),
    click.option("--layout", type=click.Choice(["nn", "nt", "tn", "tt"]), default="nn",
                 show_default=True, help="Whether A and B are stored transposed."),
    click.option("--constant-weights", is_flag=True,
                 help="Weights of products and convolutions stay the same, as in a model: what a "
                 "kernel makes of them once takes no time in a call."),
    click.option("--sym", "symbols", multiple=True, metavar="NAME=N[,N...]",
                 help="Values of a model's named dimension to tune for."),
)
_HOW = _options(
    click.option("--effort", type=click.Choice(["quick", "normal", "full"]), default="normal",
                 show_default=True, help="quick: 8 candidates per problem, normal: 16, full: all."),
    click.option("--budget", type=Duration(), metavar="TIME",
                 help="For everything together (60s, 5m). Default by effort: 60s, 5m, 1h."),
    click.option("--trials", type=click.IntRange(min=1), metavar="N",
                 help="Candidates per problem, instead of the effort's."),
    click.option("--strategy", default="guided", show_default=True,
                 help="guided, random, exhaustive, evolutionary or optuna."),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
                 help="Seed of operands and of the strategy."),
    click.option("--strict", is_flag=True,
                 help="Only kernels that add in the same order as the default one."),
    click.option("--jobs", type=click.IntRange(min=1), metavar="N",
                 help="Compile processes (default GE2_JOBS, else the number of cores)."),
    click.option("--resume/--force", default=True,
                 help="Take what records know (default), or measure everything again."),
    click.option("--compile-timeout", type=Duration(), default=60.0, metavar="TIME",
                 help="Of one kernel [default: 60s]."),
    click.option("--run-timeout", type=Duration(), default=30.0, metavar="TIME",
                 help="Of checking one candidate [default: 30s]."),
    click.option("--atol", type=Number(min=0), metavar="X",
                 help="Absolute error bound of the check (default: by dtype and length)."),
    click.option("--rtol", type=Number(min=0), metavar="X",
                 help="Relative error bound of the check."),
    click.option("--vs", type=click.Choice(["torch"]), help="Time a peer beside the result."),
)
_WHERE = _options(
    click.option("--device", type=click.IntRange(min=0), metavar="N",
                 help="CUDA device index (default GE2_DEVICE, else 0)."),
    click.option("--devices", metavar="N,N,...", help="Several GPUs; the problems are shared out."),
    click.option("--backend", type=click.Choice(["cuda", "emulate"]), default="cuda",
                 show_default=True, help="emulate: the whole search without a GPU, with times of "
                 "the cost model; its records never count for a GPU."),
    click.option("--arch", metavar="SM", callback=known_arch,
                 help="With --dry-run and --compile-only: instead of the GPU that is here."),
    click.option("--dry-run", is_flag=True, help="Show the space and estimates; measure nothing."),
    click.option("--compile-only", is_flag=True,
                 help="Compile every candidate into the cache; needs no GPU."),
)


@tune.command()
@_WHAT
@_HOW
@_WHERE
@report_options
def search(json_target: str | None, quiet: bool, verbose: bool, **options: Any) -> int:
    """Tune operators or models (the default command).

    Candidates run in a process of their own on private buffers. Each is compared with float64
    before it is timed; wrong, slow, crashing and hanging ones are recorded and never chosen. Every
    record is kept as it is made: Ctrl-C (exit code 130) loses nothing, and the next call goes on.
    Exit code 5 when a problem has no valid candidate, 4 without a GPU.
    """
    from .tune_search import run_search

    report = Report(json_target, quiet=quiet, verbose=verbose)
    if not options["models"] and not options["ops"] and not options["everything"]:
        raise click.UsageError("say what to tune: --op NAME, --all or a model file")
    if options["models"] and (options["ops"] or options["shapes"] or options["shape_file"]):
        raise click.UsageError("--op and --shape do not go with model files")
    if options["symbols"] and not options["models"]:
        raise click.UsageError("--sym belongs to model files")
    try:
        return run_search(report, options)
    except Invalid as error:
        raise click.UsageError(str(error)) from None
    except EnvironmentUnusable as error:
        raise EnvironmentUnusable(
            str(error), hint="--dry-run and --compile-only --arch sm_90a need no GPU") from error


for _command in (show, export, import_, merge, pin, forget, plot):
    tune.add_command(_command)
