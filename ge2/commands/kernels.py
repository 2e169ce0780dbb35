"""ge2 kernels: what kernels there are, their sources, compiling and emulating them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ..errors import CompileFailed, near_matches
from .kernel_lookup import (
    arch_option,
    choose_example,
    describe,
    find_kernel,
    fitting_problems,
    known_arch,
    no_example,
    sources_of,
)
from .kernel_tools import bench, diff, emulate, new, profile
from .output import Report, bad, good, report_options

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import KernelInfo
    from ..launch.record import KernelSource

@click.group()
def kernels() -> None:
    """Look at kernels, compile, emulate, compare and write them.

    NAME is a kernel ("gemm_bias_act_f32_tiled") or one variant of it ("...[BM=64,BN=64]").
    """


@kernels.command("list")
@click.option("--op", "op_type", metavar="OP", help="Only kernels of this operator type.")
@click.option("--arch", metavar="SM", callback=known_arch,
              help="Only kernels that run on this architecture.")
@report_options
def list_(op_type: str | None, arch: str | None, json_target: str | None, quiet: bool,
          verbose: bool) -> None:
    """List the kernels; -v lists every variant."""
    from ..compiler.kernels import registry

    report = Report(json_target, quiet=quiet, verbose=verbose)
    known = {k.op_type for k in registry.all_kernels()}
    if op_type is not None and op_type.upper() not in known:
        raise click.BadParameter(f"no kernels for {op_type!r}; {near_matches(op_type, known)} "
                                 f"there are {', '.join(sorted(known))}", param_hint="--op")
    found = [k for k in registry.all_kernels()
             if (op_type is None or k.op_type == op_type.upper())
             and (arch is None or k.runs_on(arch))]
    if verbose:
        for kernel in found:
            for variant in kernel.variants:
                report.line(variant.id)
    else:
        report.table(("kernel", "operator", "variants", "archs", "score", "summary"), [
            (k.name, k.op_type, len(k.variants), " ".join(k.archs), k.score, k.summary)
            for k in found], right=frozenset({2, 4}))
    variants = sum(len(k.variants) for k in found)
    report.message(f"{len(found)} kernels, {variants} variants")
    report.data = {"kernels": [_as_dict(k) for k in found]}
    report.finish()


@kernels.command()
@click.argument("name")
@report_options
def show(name: str, json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Show a kernel's metadata: dtypes, guards, parameters, variants."""
    from ..compiler.kernels import source

    report = Report(json_target, quiet=quiet, verbose=verbose)
    kernel, variants = find_kernel(name)
    report.data = _as_dict(kernel)
    report.line(f"{kernel.name}: {kernel.summary}")
    rows = {
        "operator": kernel.op_type, "template": str(source.template_path(kernel.template)),
        "launch rule": kernel.launch, "capability": f"{kernel.capability_key} = {kernel.score}",
        "numerics": kernel.numerics or "-", "archs": " ".join(kernel.archs),
        "dtypes": "; ".join(f"{', '.join(d.inputs)} -> {d.output}" for d in kernel.dtypes),
        "layouts": "; ".join(f"{n}: {', '.join(v)}" for n, v in kernel.layouts) or "any",
        "flags": ", ".join(sorted(kernel.flags)) or "-",
        "params": "; ".join(f"{n} = {', '.join(map(str, v))}" for n, v in kernel.params) or "-",
        "guards": _guards(kernel.guards) or "none",
        **{f"guards {arch}": _guards(g) for arch, g in kernel.arch_guards},
    }
    for key, value in rows.items():
        report.line(f"  {key:12} {value}")
    report.line(f"  {'variants':12} {len(variants)}")
    for variant in variants if verbose else ():
        report.line(f"    {variant.id}")
    report.finish()


@kernels.command()
@click.argument("name")
@arch_option
@click.option("--example", type=click.IntRange(min=0), default=0, show_default=True,
              help="Which of the launch rule's example problems to bind.")
@report_options
def render(name: str, arch: str, example: int, json_target: str | None, quiet: bool,
           verbose: bool) -> None:
    """Print the CUDA source of one variant; without one named, of the first that fits."""
    from ..compiler.kernels import source

    report = Report(json_target, quiet=quiet, verbose=verbose)
    _, variants = find_kernel(name)
    variant, problem = choose_example(variants, arch, example)
    report.message(f"{variant.id} for {describe(problem)}")
    texts = {s.entry: source.render(s) for s in sources_of(variant, problem, arch)}
    for text in texts.values():
        report.line(text)
    report.data = {"variant": variant.id, "arch": arch, "sources": texts}
    report.finish()


@kernels.command("compile")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@arch_option
@click.option("--all", "everything", is_flag=True,
              help="Compile every kernel: the first variant that fits.")
@click.option("--all-variants", is_flag=True, help="With --all, every variant.")
@report_options
def compile_(names: tuple[str, ...], arch: str, everything: bool, all_variants: bool,
             json_target: str | None, quiet: bool, verbose: bool) -> int:
    """Compile kernels for an architecture and show registers, spills and time.

    Needs NVRTC, no GPU. Exit code 1 when one does not compile.
    """
    from ..compiler.kernels import registry
    from ..runtime import jit

    report = Report(json_target, quiet=quiet, verbose=verbose)
    if bool(names) == everything:
        raise click.UsageError("name kernels, or give --all")
    wanted = dict.fromkeys(
        names or (k.name for k in registry.all_kernels() if k.runs_on(arch)))
    sources: dict[KernelSource, str] = {}
    for name in wanted:
        found = len(sources)
        for variant in find_kernel(name)[1]:
            known = len(sources)
            for problem in fitting_problems(variant, arch):
                for item in sources_of(variant, problem, arch):
                    sources.setdefault(item, variant.id)
            if everything and not all_variants and len(sources) > known:
                break
        if len(sources) == found:
            raise no_example(name, arch)
    report.message(f"compiling {len(sources)} sources for {arch} ...")
    start = time.perf_counter()
    outcomes = jit.try_compile(sources, arch)
    seconds = time.perf_counter() - start
    failed, rows, data = 0, [], []
    for item, outcome in outcomes.items():
        label = sources[item]
        if isinstance(outcome, CompileFailed):
            failed += 1
            report.line(f"{bad('failed')}  {label} ({item.entry})\n{outcome}\n{outcome.log}")
            data.append({"variant": label, "entry": item.entry, "ok": False,
                         "error": str(outcome), "log": outcome.log,
                         "source": outcome.source_path})
            continue
        use = outcome.meta.resources
        cost = "cached" if outcome.from_cache else f"{outcome.meta.compile_ms:.0f} ms"
        rows.append((label, use.registers, use.spill_stores + use.spill_loads, use.static_smem,
                     cost))
        data.append({"variant": label, "entry": item.entry, "ok": True,
                     "registers": use.registers, "spills": use.spill_stores + use.spill_loads,
                     "static_smem": use.static_smem, "compile_ms": outcome.meta.compile_ms,
                     "cached": outcome.from_cache, "path": str(outcome.path)})
    if rows and not (everything and not verbose):
        report.table(("variant", "regs", "spills", "static smem", "compile"), rows,
                     right=frozenset({1, 2, 3, 4}))
    word = good("all compile") if not failed else bad(f"{failed} do not compile")
    report.line(f"{len(outcomes)} sources for {arch} in {seconds:.1f} s: {word}")
    report.data = {"arch": arch, "seconds": seconds, "sources": data}
    report.finish()
    return 1 if failed else 0


for _command in (emulate, bench, diff, new, profile):
    kernels.add_command(_command)


def _guards(guards: Any) -> str:
    from dataclasses import fields

    shown = []
    for item in fields(guards):
        value = getattr(guards, item.name)
        if value != item.default:
            inner = ", ".join(f"{n}: {v}" for n, v in value) if isinstance(value, tuple) else value
            shown.append(f"{item.name} = {inner}")
    return "; ".join(shown)


def _as_dict(kernel: KernelInfo) -> dict[str, Any]:
    return {
        "name": kernel.name, "op_type": kernel.op_type, "summary": kernel.summary,
        "template": kernel.template, "launch": kernel.launch, "score": kernel.score,
        "capability": kernel.capability_key, "numerics": kernel.numerics, "archs": kernel.archs,
        "dtypes": [{"in": d.inputs, "out": d.output} for d in kernel.dtypes],
        "layouts": dict(kernel.layouts), "flags": sorted(kernel.flags),
        "min_mnk": kernel.min_mnk, "params": dict(kernel.params),
        "guards": _guards(kernel.guards), "variants": [v.id for v in kernel.variants]}
