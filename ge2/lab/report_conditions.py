"""The report's section on conditions: what a realization takes when it is granted less."""

from __future__ import annotations

from collections.abc import Mapping

from ..evidence.device import DeviceProfile
from ..evidence.keys import problem_key
from ..evidence.record import Record
from . import conditions, sweep
from .conditions import CONDITIONS
from .realizations import realizations
from .svg import table

Known = Mapping[tuple[str, str], Record]


def conditions_section(family: str, known: Known, device: DeviceProfile) -> str:
    """Return a table of times under each condition; "" where none was measured."""
    rows = []
    for problem in sweep.SWEEP[family]():
        if not conditions.is_restricted(family, problem):
            continue
        key = problem_key(problem)
        for one in realizations(family, device.arch):
            usual = known.get((key, one.variant.id))
            found = {r.condition.name: known[key, r.id]
                     for r in conditions.restricted(one.variant) if (key, r.id) in known}
            if usual is not None and found:
                rows.append((sweep.label(problem), one.name, f"{usual.time_us:.1f}",
                             *(_cell(usual, found.get(name)) for name in CONDITIONS)))
    if not rows:
        return ""
    about = "; ".join(f"{c.name}: {c.about}" for c in CONDITIONS.values())
    return (f"<h3>Under other conditions</h3><p>{about}. Times are over that without the "
            "condition; bytes that spill stand beside.</p>"
            + table(("problem", "realization", "us", *CONDITIONS), rows))


def _cell(usual: Record, found: Record | None) -> str:
    if found is None:
        return ""
    spills = f", {found.spills} B spill" if found.spills > usual.spills else ""
    return f"{found.time_us / usual.time_us:.2f} x{spills}"
