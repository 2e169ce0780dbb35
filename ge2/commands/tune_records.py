"""ge2 tune show, export, import, merge, pin, forget, plot: what was measured, and carrying it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import Invalid
from .kernel_lookup import known_arch
from .output import Report, bad, report_options, writable_file

if TYPE_CHECKING:
    from ..evidence.record import Decision, Item, Record
    from ..evidence.records import Store

_problem_argument = click.argument("problem", required=False, metavar="[PROBLEM]")


def _store(*, writable: bool = False) -> Store:
    from ..evidence.records import Store, default_path

    path = default_path()
    if not writable and not path.exists():
        return Store(None)
    return Store(path)


def _own(store: Store) -> list[Item]:
    items: list[Item] = [*store.records()]
    return [*items, *store.decisions()]


def _everything(store: Store) -> list[Item]:
    """Return the user's evidence and what ships with ge2, the newest of each key."""
    from ..evidence.exchange import merged, shipped

    return merged([shipped(), _own(store)])


def _matches(item: Item, text: str | None) -> bool:
    """Whether a problem is meant by a text: a part of its shape line, or the start of its key."""
    if not text:
        return True
    return item.problem.startswith(text) or text.lower() in item.shape.lower()


def _split(items: Sequence[Item]) -> tuple[list[Record], list[Decision]]:
    from ..evidence.record import Decision, Record

    return ([i for i in items if isinstance(i, Record)],
            [i for i in items if isinstance(i, Decision)])


@click.command()
@_problem_argument
@report_options
def show(problem: str | None, json_target: str | None, quiet: bool, verbose: bool) -> None:
    """List what was decided; with -v, or when one PROBLEM is left, every candidate.

    PROBLEM is a part of the line that this command prints ("GEMM_BIAS_ACT: f16[512"), or the start
    of a problem's key.
    """
    from ..compiler.kernels import registry
    from ..evidence.record import as_plain
    from ..runtime.tuned import age

    report = Report(json_target, quiet=quiet, verbose=verbose)
    there = {variant.id for kernel in registry.all_kernels() for variant in kernel.variants}
    with _store() as store:
        records, decisions = _split([i for i in _everything(store) if _matches(i, problem)])
    for item in sorted(decisions, key=lambda d: (d.shape, d.device)):
        report.line(item.shape)
        report.line(f"    {item.problem[:12]}  {item.device.partition('|')[0]}  {item.time_us:.2f}"
                    f" us  {100 * item.gain:+.1f} % over the default  {item.variant}  "
                    f"{age(item.date)}"
                    + ("" if item.variant in there else "  not used: this ge2 has no such kernel"))
    detailed = verbose or len({r.problem for r in records}) == 1
    if detailed:
        _list_records(records, report)
    report.line(f"{len(decisions)} problems decided, {len(records)} records")
    report.data = {"decisions": [as_plain(d) for d in decisions],
                   "records": [as_plain(r) for r in records] if detailed else len(records)}
    report.finish()


def _list_records(records: Sequence[Record], report: Report) -> None:
    rows = []
    for record in sorted(records, key=lambda r: (r.shape, not r.is_ok, r.time_us)):
        value = (f"{record.time_us:.2f} ± {100 * record.spread:.1f} %" if record.is_ok
                 else bad(record.state))
        rows.append((record.problem[:12], value, f"{record.gbps:.0f}", f"{record.tflops:.1f}",
                     f"{100 * record.roofline:.0f} %", record.registers, record.spills,
                     f"{100 * record.occupancy:.0f} %", f"{record.ulp:.1f}",
                     record.variant + ("" if record.is_ok else f"  {record.reason[:80]}")))
    if rows:
        report.table(("problem", "us", "GB/s", "TFLOP/s", "roofline", "regs", "spills",
                      "occupancy", "ulp", "kernel"), rows, right=frozenset(range(1, 9)))


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--problem", metavar="PROBLEM", help="Only problems that match, as in show.")
@click.option("--all", "with_shipped", is_flag=True, help="Also what ships with ge2.")
@report_options
def export(file: Path, problem: str | None, with_shipped: bool, json_target: str | None,
           quiet: bool, verbose: bool) -> None:
    """Write the evidence into FILE (JSON lines), for other machines and for safe keeping."""
    from ..evidence.exchange import write_file

    report = Report(json_target, quiet=quiet, verbose=verbose)
    with _store() as store:
        items = _everything(store) if with_shipped else _own(store)
    count = write_file(file, [i for i in items if _matches(i, problem)])
    report.line(f"wrote {count} items to {file}")
    report.data = {"items": count, "file": str(file)}
    report.finish()


@click.command("import")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@report_options
def import_(files: tuple[Path, ...], json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Add the evidence of FILES; a file is taken whole or, with the reason, not at all.

    Of a record that is here, too, the newer one stays. Evidence of another GPU, driver or kernel is
    kept as a hint: it orders searches, and never decides a run on this GPU.
    """
    from ..evidence.exchange import read_file

    report = Report(json_target, quiet=quiet, verbose=verbose)
    batches = [(file, read_file(file)) for file in files]
    with _store(writable=True) as store:
        for file, items in batches:
            store.put(*items)
            report.line(f"{file}: {len(items)} items")
    report.data = {"files": {str(file): len(items) for file, items in batches}}
    report.finish()


@click.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE",
              callback=writable_file,
              help="Where the merged evidence goes.")
@report_options
def merge(files: tuple[Path, ...], output: Path, json_target: str | None, quiet: bool,
          verbose: bool) -> None:
    """Merge evidence FILES into one; of equal keys the newest item stays."""
    from ..evidence.exchange import merged, read_file, write_file

    report = Report(json_target, quiet=quiet, verbose=verbose)
    groups = [read_file(file) for file in files]
    count = write_file(output, merged(groups))
    report.line(f"wrote {count} of {sum(map(len, groups))} items to {output}")
    report.data = {"items": count, "file": str(output)}
    report.finish()


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--sym", "symbols", multiple=True, metavar="NAME=N[,N...]",
              help="Values of a named dimension to pin for (default 1).")
@click.option("--device", type=click.IntRange(min=0), metavar="N", help="CUDA device index.")
@click.option("--arch", metavar="SM", callback=known_arch,
              help="Pin for this architecture instead of the GPU here.")
@report_options
def pin(model: Path, symbols: tuple[str, ...], device: int | None, arch: str | None,
        json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Write the kernels that MODEL runs now into a lock file beside it (MODEL.tuning.json).

    `ge2 run --tuning pinned` then runs these, whatever is tuned later.
    """
    from ..evidence.lockfile import lock_path, write_lock

    report = Report(json_target, quiet=quiet, verbose=verbose)
    lock = _lock_of(model, symbols, device, arch)
    target = lock_path(model)
    write_lock(target, lock)
    tuned = sum(choice.tuned for choice in lock.choices)
    report.line(f"pinned {len(lock.choices)} problems ({tuned} tuned, the others by the rules) "
                f"in {target}")
    report.data = {"file": str(target), "problems": len(lock.choices), "tuned": tuned}
    report.finish()


def _lock_of(path: Path, symbols: tuple[str, ...], device: int | None, arch: str | None) -> Any:
    from .. import __version__, launch_table
    from ..compiler.concrete import concretize
    from ..compiler.plan import make_plan
    from ..errors import Ge2Error
    from ..evidence import versions
    from ..evidence.keys import device_key, problem_key, shape_text
    from ..evidence.lockfile import Lock, Pinned
    from ..evidence.record import SCHEMA
    from ..model import load
    from ..runtime.digests import compiled_digest, distinct_sources, source_digest
    from ..runtime.tuned import TunedChooser, compiler
    from .tune_search import profile_of, symbol_sets

    profile = profile_of({"arch": arch, "backend": "cuda", "device": device}, offline=True)
    model = load(path, backend="cpu")
    choose = TunedChooser("on")
    found: dict[str, Pinned] = {}
    for values in symbol_sets(symbols, model.symbols):
        plan = make_plan(concretize(model.optimized.graph, values), profile, choose=choose)
        for step in plan.steps:
            key = problem_key(step.problem)
            if step.choice is None or key in found:
                continue
            variant, basis = step.choice.variant, step.choice.basis
            sources = distinct_sources(launch_table.bind(step.problem, variant, profile))
            try:
                cubin = compiled_digest(sources, profile.arch)
            except Ge2Error:
                cubin = ""
            found[key] = Pinned(
                problem=key, shape=shape_text(step.problem), variant=variant.id,
                numerics=variant.numerics, cubin=cubin, sources=source_digest(sources),
                tuned=basis.kind in ("tuned", "hint"), margin=basis.margin, date=basis.date)
    return Lock(ge2_tuning=SCHEMA, device=device_key(profile), driver=versions.driver_version(),
                nvrtc=compiler(), ge2=__version__, choices=tuple(found.values()))


@click.command()
@_problem_argument
@click.option("--all", "everything", is_flag=True, help="Every problem.")
@report_options
def forget(problem: str | None, everything: bool, json_target: str | None, quiet: bool,
           verbose: bool) -> None:
    """Delete the evidence of a PROBLEM (as in show); what ships with ge2 stays."""
    report = Report(json_target, quiet=quiet, verbose=verbose)
    if (problem is None) == (not everything):
        raise click.UsageError("name a PROBLEM, or say --all")
    with _store() as store:
        items = _own(store)
        keys = dict.fromkeys(i.problem for i in items if _matches(i, problem))
        count = sum(store.forget(problem=key) for key in keys)
    if problem and not keys:
        raise Invalid("there is no evidence of such a problem", found=repr(problem),
                      hint="ge2 tune show lists what there is")
    report.line(f"forgot {count} items of {len(keys)} problems")
    report.data = {"items": count, "problems": len(keys)}
    report.finish()


@click.command()
@click.argument("problem", metavar="PROBLEM")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("tuning.png"),
              callback=writable_file,
              show_default=True, metavar="FILE", help="PNG, SVG or PDF.")
@report_options
def plot(problem: str, output: Path, json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Draw the candidates of a PROBLEM (as in show), in the order in which they were measured.

    Needs matplotlib: pip install 'ge2[plot]'.
    """
    report = Report(json_target, quiet=quiet, verbose=verbose)
    with _store() as store:
        records, _ = _split([i for i in _everything(store) if _matches(i, problem)])
    timed = sorted((r for r in records if r.is_ok), key=lambda r: r.date)
    shapes = list(dict.fromkeys(r.shape for r in timed))
    if len(shapes) != 1:
        raise Invalid("a plot shows one problem", found=f"{len(shapes)} that match {problem!r}",
                      hint="ge2 tune show lists them with their keys")
    _draw(timed, output)
    report.line(f"wrote {output}")
    report.data = {"file": str(output), "candidates": len(timed)}
    report.finish()


def _draw(records: Sequence[Record], output: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        raise Invalid("drawing needs matplotlib", hint="pip install 'ge2[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    kernels = list(dict.fromkeys(r.variant.partition("[")[0] for r in records))
    for kernel in kernels:
        own = [(i, r) for i, r in enumerate(records) if r.variant.partition("[")[0] == kernel]
        axes.errorbar([i for i, _ in own], [r.time_us for _, r in own],
                      yerr=[r.time_us * r.spread / 2 for _, r in own], fmt="o", capsize=3,
                      label=kernel)
    best = [min(r.time_us for r in records[:i + 1]) for i in range(len(records))]
    axes.step(range(len(records)), best, where="post", color="0.5", label="best so far")
    axes.set_title(records[0].shape, fontsize=9)
    axes.set_xlabel("candidate, in the order measured")
    axes.set_ylabel("time in µs")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    try:
        figure.savefig(output, dpi=150)
    except (OSError, ValueError) as error:
        raise Invalid(f"{output} cannot be written", found=str(error)) from error
    finally:
        pyplot.close(figure)
