"""Finding kernels, variants and example problems by what a user typed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..errors import Ge2Error, Invalid, NoKernelError, Unsupported

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import KernelInfo, Variant
    from ..launch.record import KernelSource
    from ..problem import Problem

DEFAULT_ARCH = "sm_90a"
REFUSALS_SHOWN = 3


def known_arch(_context: click.Context, _option: click.Parameter, arch: str | None
               ) -> str | None:
    """Return the value of --arch, which may be absent; refuse what is no architecture."""
    from ..evidence.device import profile_for

    if not arch:
        return arch
    try:
        profile_for(arch)
    except Unsupported as error:
        raise click.BadParameter(str(error)) from None
    return arch


arch_option = click.option("--arch", default=DEFAULT_ARCH, show_default=True, metavar="SM",
                           callback=known_arch,
                           help="Architecture to bind and compile for; no GPU is needed.")


def find_kernel(name: str) -> tuple[KernelInfo, tuple[Variant, ...]]:
    """Return a kernel and its variants, or the one variant that is named."""
    from ..compiler.kernels import registry

    if "[" in name:
        variant = registry.variant(name)
        return variant.kernel, (variant,)
    kernel = registry.get(name.rsplit("/", 1)[-1])
    return kernel, kernel.variants


def fitting_problems(variant: Variant, arch: str) -> Iterator[Problem]:
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


def sized_problems(variant: Variant, arch: str, extents: Sequence[int]
                   ) -> tuple[list[Problem], list[str]]:
    """Return the rule's examples in a size, as far as the variant serves them, and why not others.

    Raises:
        Invalid: not as many extents as the operator's sizes have.
    """
    from ..compiler.kernels import selector
    from ..evidence.device import profile_for
    from ..launch.extents import check_extents, with_extents
    from ..launch.rule import LAUNCH_RULES

    found: dict[Problem, None] = {}
    refused: list[str] = []
    check_extents(variant.kernel.op_type, extents)
    if not variant.kernel.runs_on(arch):
        return [], []
    for example in LAUNCH_RULES[variant.kernel.launch].examples(variant):
        try:
            problem = with_extents(example, extents)
        except Ge2Error as error:
            refused.append(f"{describe(example)}: {error}")
            continue
        ranked = selector.rank(problem, profile_for(arch), kernels=[variant.kernel])
        reasons = next(r.reasons for r in ranked if r.variant_id == variant.id)
        if reasons:
            refused.append(f"{describe(problem)}: {', '.join(reasons)}")
        else:
            found[problem] = None
    return list(found), refused


def choose_example(variants: Iterable[Variant], arch: str, number: int) -> tuple[Variant, Problem]:
    """Return the first variant that serves example problems on arch, and one of those.

    Raises:
        Invalid: there is no example of that number.
        NoKernelError: no variant serves an example there.
    """
    tried = ""
    for variant in variants:
        tried = variant.id
        problems = list(fitting_problems(variant, arch))
        if problems and number >= len(problems):
            raise Invalid("there is no such example", argument="example", found=number,
                          wanted=f"0 to {len(problems) - 1}")
        if problems:
            return variant, problems[number]
    raise no_example(tried, arch)


def no_example(name: str, arch: str, refused: Iterable[str] = ()) -> NoKernelError:
    """Return the error for a kernel that serves none of its examples on an architecture."""
    reasons = list(dict.fromkeys(refused))
    return NoKernelError(f"{name} serves no example problem on {arch}",
                         found="; ".join(reasons[:REFUSALS_SHOWN]) or None,
                         hint="ge2 kernels show NAME lists its architectures and guards")


def sources_of(variant: Variant, problem: Problem, arch: str) -> list[KernelSource]:
    """Return what a variant compiles for a problem."""
    from .. import launch_table
    from ..evidence.device import profile_for

    return list(dict.fromkeys(
        r.kernel for r in launch_table.bind(problem, variant, profile_for(arch))))


def describe(problem: Problem) -> str:
    """Return a problem's operator, dtypes and shapes in one line."""
    def text(specs: Iterable[Any]) -> str:
        return ", ".join(f"{s.dtype}{list(s.shape)}" if s else "-" for s in specs)

    return f"{problem.op_type}: {text(problem.inputs)} -> {text(problem.outputs)}"
