"""ge2 kernels: what kernels there are, their sources, compiling and emulating them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from ..errors import CompileFailed, Invalid, KernelSpecError, NoKernelError
from .output import Report, bad, good, report_options

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import KernelInfo, Variant
    from ..launch.record import KernelSource
    from ..problem import Problem

DEFAULT_ARCH = "sm_90a"
_arch_option = click.option("--arch", default=DEFAULT_ARCH, show_default=True, metavar="SM",
                            help="Architecture to bind and compile for; no GPU is needed.")


@click.group()
def kernels() -> None:
    """List, show, render, compile or emulate kernels.

    NAME is a kernel ("gemm_bias_act_f32_tiled") or one variant of it ("...[BM=64,BN=64]").
    """


@kernels.command("list")
@click.option("--op", "op_type", metavar="OP", help="Only kernels of this operator type.")
@click.option("--arch", metavar="SM", help="Only kernels that run on this architecture.")
@report_options
def list_(op_type: str | None, arch: str | None, json_target: str | None, quiet: bool,
          verbose: bool) -> None:
    """List the kernels; -v lists every variant."""
    from ..compiler.kernels import registry

    report = Report(json_target, quiet=quiet, verbose=verbose)
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
    kernel, variants = _find(name)
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
@_arch_option
@click.option("--example", type=click.IntRange(min=0), default=0, show_default=True,
              help="Which of the launch rule's example problems to bind.")
@report_options
def render(name: str, arch: str, example: int, json_target: str | None, quiet: bool,
           verbose: bool) -> None:
    """Print the CUDA source of one variant; without one named, of the first that fits."""
    from ..compiler.kernels import source

    report = Report(json_target, quiet=quiet, verbose=verbose)
    _, variants = _find(name)
    variant, problem = _example(variants, arch, example)
    report.message(f"{variant.id} for {_shapes(problem)}")
    texts = {s.entry: source.render(s) for s in _sources(variant, problem, arch)}
    for text in texts.values():
        report.line(text)
    report.data = {"variant": variant.id, "arch": arch, "sources": texts}
    report.finish()


@kernels.command("compile")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@_arch_option
@click.option("--all", "everything", is_flag=True, help="Compile every kernel.")
@report_options
def compile_(names: tuple[str, ...], arch: str, everything: bool, json_target: str | None,
             quiet: bool, verbose: bool) -> int:
    """Compile kernels for an architecture and show registers, spills and time.

    Needs NVRTC, no GPU. Exit code 1 when one does not compile.
    """
    from ..compiler.kernels import registry
    from ..runtime import jit

    report = Report(json_target, quiet=quiet, verbose=verbose)
    if bool(names) == everything:
        raise click.UsageError("name kernels, or give --all")
    wanted = names or tuple(k.name for k in registry.all_kernels() if k.runs_on(arch))
    sources: dict[KernelSource, str] = {}
    for name in wanted:
        for variant in _find(name)[1]:
            for problem in _fitting(variant, arch):
                for item in _sources(variant, problem, arch):
                    sources.setdefault(item, variant.id)
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


def _find(name: str) -> tuple[KernelInfo, tuple[Variant, ...]]:
    """Return a kernel and its variants, or the one variant that is named."""
    from ..compiler.kernels import registry

    if "[" in name:
        variant = registry.variant(name)
        return variant.kernel, (variant,)
    kernel = registry.get(name.rsplit("/", 1)[-1])
    return kernel, kernel.variants


def _fitting(variant: Variant, arch: str) -> Iterator[Problem]:
    """Yield the rule's example problems that the variant serves on an architecture."""
    from ..compiler.kernels import selector
    from ..evidence.device import profile_for
    from ..launch.rule import LAUNCH_RULES

    if not variant.kernel.runs_on(arch):
        return
    for problem in LAUNCH_RULES[variant.kernel.launch].examples(variant):
        try:
            ranked = selector.select(problem, profile_for(arch), kernels=[variant.kernel])
        except NoKernelError:
            continue
        if any(r.variant_id == variant.id and not r.reasons for r in ranked.reports):
            yield problem


def _example(variants: Iterable[Variant], arch: str, number: int) -> tuple[Variant, Problem]:
    tried = ""
    for variant in variants:
        tried = variant.id
        problems = list(_fitting(variant, arch))
        if problems and number >= len(problems):
            raise Invalid("there is no such example", argument="example", found=number,
                          wanted=f"0 to {len(problems) - 1}")
        if problems:
            return variant, problems[number]
    raise KernelSpecError(f"{tried} serves no example problem on {arch}",
                          hint="ge2 kernels show NAME lists its architectures and guards")


def _sources(variant: Variant, problem: Problem, arch: str) -> list[KernelSource]:
    from .. import launch_table
    from ..evidence.device import profile_for

    return list(dict.fromkeys(
        r.kernel for r in launch_table.bind(problem, variant, profile_for(arch))))


def _shapes(problem: Problem) -> str:
    def text(specs: Iterable[Any]) -> str:
        return ", ".join(f"{s.dtype}{list(s.shape)}" if s else "-" for s in specs)

    return f"{problem.op_type}: {text(problem.inputs)} -> {text(problem.outputs)}"


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
