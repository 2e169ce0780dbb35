"""Launch rules: from a problem and a kernel variant to launch records.

A rule is an object (or a module) with bind and examples. Each module ge2.launch.<family> holds
`RULES: dict[str, LaunchRule]`; the metadata's `launch = "gemm"` means RULES["gemm"] there, and
`launch = "gemm.splitk"` RULES["gemm.splitk"] of the same module.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..errors import KernelSpecError, near_matches
from ..problem import Problem
from .record import LaunchRecord

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile


class LaunchRule(Protocol):
    """How the kernels of one family are launched."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launches that solve problem with variant; [] where all outputs are empty.

        Everything known at compile time goes into KernelSource.context (classes such as dtype,
        rank, vector width; never a run-time size), everything else into grid, block and args.

        Raises:
            Ge2Error: the problem is not one that the variant's guards let through.
        """
        ...

    def examples(self, variant: Variant) -> list[Problem]:
        """Return a few problems that variant accepts: one for each class of source it renders."""
        ...


@runtime_checkable
class PreparingRule(Protocol):
    """A LaunchRule with launches that only write an input in another form."""

    def prepares(self, problem: Problem, slot: int) -> bool:
        """Return whether there is such a launch of an input; problem is of the rule's operator."""
        ...


FAMILIES = ("gemm", "norm_gemm", "nbits", "lab", "elementwise", "row", "row_resident", "row_ring",
            "scan", "movement", "gather", "pad", "resample", "conv", "conv_lines", "conv_wgmma",
            "pool", "attention")


class _Rules(Mapping[str, LaunchRule]):
    """Rules by name; a family's module is imported when one of its rules is first asked for."""

    def __init__(self) -> None:
        self._own: dict[str, LaunchRule] = {}

    def __getitem__(self, name: str) -> LaunchRule:
        if name in self._own:
            return self._own[name]
        rules = _family_rules(name.partition(".")[0])
        if name not in rules:
            known = sorted({*self._own, *FAMILIES, *rules})
            raise KernelSpecError("no such launch rule", argument="launch", found=repr(name),
                                  wanted=", ".join(known), hint=near_matches(name, known))
        return rules[name]

    def __iter__(self) -> Iterator[str]:
        for family in FAMILIES:
            yield from _family_rules(family)
        yield from self._own

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def add(self, name: str, rule: LaunchRule) -> None:
        """Add a rule for kernels that are registered at run time."""
        self._own[name] = rule


def _family_rules(family: str) -> Mapping[str, LaunchRule]:
    if family not in FAMILIES:
        return {}
    module = importlib.import_module(f"{__package__}.{family}")
    rules: Mapping[str, LaunchRule] = module.RULES
    return rules


LAUNCH_RULES = _Rules()
