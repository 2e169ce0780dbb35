"""Realizations: what exists of each family, found by scanning.

A realization is a variant of one of the family's consumer kernels, which includes a header below
kernels/include/ge2/prim or takes a choice of a param, or it is a treatment of a chain of operators.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..compiler.kernels import registry
from ..compiler.kernels.headers import Header, headers_of, refuse_realization
from ..compiler.kernels.metadata import Variant
from ..evidence.device import profile_for
from ..launch.rule import LAUNCH_RULES
from ..problem import Problem
from . import plans
from .plans import PlanVariant
from .primitives import CHOICES, FAMILIES, Family, Primitive


@dataclass(frozen=True, slots=True)
class Realization:
    """One implementation of a family's contract.

    Attributes:
        family: whose contract it keeps.
        variant: how it is bound, timed and recorded.
        headers: that it is built from, in the order of its params.
    """

    family: Family
    variant: Variant | PlanVariant
    headers: tuple[Header, ...] = ()

    @property
    def name(self) -> str:
        """Short name: the choices that tell the family's realizations apart."""
        if isinstance(self.variant, PlanVariant):
            return self.variant.treatment
        open_params = {name for name, choices in self.variant.kernel.params if len(choices) > 1}
        return "/".join(str(v) for k, v in self.variant.params if k in open_params)

    @property
    def summary(self) -> str:
        """One line."""
        if self.headers:
            return "; ".join(header.summary for header in self.headers)
        if self.name in CHOICES or isinstance(self.variant, PlanVariant):
            return CHOICES[self.name]
        return self.variant.kernel.summary

    @property
    def numerics(self) -> str:
        """The order of accumulation."""
        return self.headers[-1].numerics if self.headers else self.variant.numerics

    @property
    def consumer(self) -> str:
        """The kernel or chain whose work it organises."""
        variant = self.variant
        return variant.chain if isinstance(variant, PlanVariant) else variant.kernel.name

    def embodies(self, primitive: Primitive) -> bool:
        """Whether this realization is an instance of the primitive."""
        params = self.variant.param_map
        return all(params.get(key) in values for key, values in primitive.embodied.items())

    def serves(self, problem: Problem) -> bool:
        """Whether a problem is one of its consumer's that it can run."""
        if isinstance(self.variant, PlanVariant):
            return self.variant.serves(problem)
        return problem.op_type == self.variant.kernel.op_type


def realizations(family: str, arch: str = "") -> list[Realization]:
    """Return what exists of a family, as the registry and the header folders have it now.

    Args:
        family: name.
        arch: leave out what this architecture does not run.
    """
    found = [one for kernel in FAMILIES[family].kernels for one in _of_kernel(family, kernel, arch)]
    return found + [Realization(FAMILIES[family], v) for v in plans.variants(family)]


def _of_kernel(family: str, kernel: str, arch: str) -> list[Realization]:
    info, device = registry.get(kernel), profile_for(arch or "sm_90a")
    if arch and not info.runs_on(arch):
        return []
    found = []
    for variant in info.variants:
        headers = tuple(headers_of(variant).values())
        if headers:
            problem = LAUNCH_RULES[info.launch].examples(variant)[0]
            if refuse_realization(problem, variant, device):
                continue
        found.append(Realization(FAMILIES[family], variant, headers))
    return found


def used_by(realization: Realization) -> list[str]:
    """Return the kernels outside the lab that are built from a realization's headers."""
    from ..compiler.kernels.source import template_path

    found = []
    for kernel in registry.all_kernels() if realization.headers else ():
        if "lab" in kernel.flags:
            continue
        text = template_path(kernel.template).read_text("utf-8")
        if any(_includes(text, kernel.params, header) for header in realization.headers):
            found.append(kernel.name)
    return found


def _includes(text: str, params: tuple[tuple[str, tuple[int | str, ...]], ...],
              header: Header) -> bool:
    direct = f"prim/{header.primitive}/{header.name}.cuh" in text
    chosen = f"prim/{header.primitive}/{{{{" in text and any(
        header.name in choices for _, choices in params)
    return direct or chosen


__all__ = ["Realization", "realizations", "used_by"]
