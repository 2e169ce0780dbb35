"""Which case tests which variant: every variant of a kernel, and every case that it accepts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import ge2.launch_table as table
from ge2.compiler.kernels import selector
from ge2.compiler.kernels.metadata import KernelInfo, Variant
from ge2.evidence.device import DeviceProfile
from ge2.launch.record import KernelSource, LaunchRecord

from .case import Case
from .problems import cases_for


@dataclass(slots=True)
class Assigned:
    """The runs that cover a kernel.

    Attributes:
        runs: (case, variant, records).
        idle: variants that no case reaches.
    """

    runs: list[tuple[Case, Variant, list[LaunchRecord]]] = field(default_factory=list)
    idle: list[Variant] = field(default_factory=list)


def assign(kernel: KernelInfo, device: DeviceProfile, *, cases: Sequence[Case] | None = None,
           least: int = 6, most: int = 220, max_sources: int = 96) -> Assigned:
    """Return runs such that accepted cases are run once and each variant at least a few times.

    Args:
        kernel: whose variants.
        device: whose guards decide what is accepted.
        cases: default: those of the kernel's op_type.
        least: runs per variant, where its guards accept as many cases.
        most: cases of the kernel beyond that; a spread-out choice of the accepted ones.
        max_sources: once so many kernel sources are needed, cases that need another are passed
            over: compiling takes far longer than running.
    """
    found = Assigned()
    variants = {v.id: v for v in kernel.variants}
    count = dict.fromkeys(variants, 0)
    accepts: dict[str, list[Case]] = {variant_id: [] for variant_id in variants}
    chosen: set[tuple[int, str]] = set()

    compiled: set[KernelSource] = set()

    def add(case: Case, variant_id: str, *, limited: bool) -> None:
        if (id(case), variant_id) in chosen:
            return
        variant = variants[variant_id]
        records = table.bind(case.problem, variant, device)
        needed = {record.kernel for record in records}
        if limited and len(compiled | needed) > max(max_sources, len(compiled)):
            return
        compiled.update(needed)
        chosen.add((id(case), variant_id))
        count[variant_id] += 1
        found.runs.append((case, variant, records))

    served: list[tuple[Case, list[str]]] = []
    for case in cases_for(kernel.op_type) if cases is None else cases:
        reports = selector.rank(case.problem, device, kernels=[kernel])
        able = [r.variant_id for r in reports if r.score is not None]
        for variant_id in able:
            accepts[variant_id].append(case)
        if able:
            served.append((case, able))
    random.Random(0).shuffle(served)
    for case, able in served[:most]:
        add(case, min(able, key=lambda i: count[i]), limited=True)
    for variant_id, able_cases in accepts.items():
        step = max(1, len(able_cases) // least)
        for case in able_cases[::step]:
            if count[variant_id] < least:
                add(case, variant_id, limited=False)
        if not able_cases:
            found.idle.append(variants[variant_id])
    return found


def sources(assigned: Iterable[Assigned]) -> list[LaunchRecord]:
    """Return one record per distinct kernel source, so that all can be compiled at once."""
    distinct = {record.kernel: record for a in assigned for _, _, records in a.runs
                for record in records}
    return list(distinct.values())
