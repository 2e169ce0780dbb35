"""One self-contained page of what realizations cost on a device, from evidence."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ..compiler.kernels.work import bytes_of
from ..evidence.device import DeviceProfile
from ..evidence.keys import device_key, problem_key
from ..evidence.record import Record
from ..problem import Problem
from . import costs, primitives, sweep
from .bench import newest, stale
from .evaluate import evaluate
from .realizations import Realization, realizations
from .report_conditions import conditions_section
from .report_device import device_figures, device_section
from .report_style import STYLE
from .svg import Axis, Figure, Series, table


@dataclass(frozen=True, slots=True)
class Measured:
    """A problem of the sweep with the records of its realizations."""

    problem: Problem
    records: tuple[tuple[Realization, Record], ...]

    @property
    def best(self) -> tuple[Realization, Record]:
        """The fastest."""
        return min(self.records, key=lambda pair: pair[1].time_us)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a report is made of.

    Attributes:
        device: with its measured rates. records: of the lab.
        known: the newest of this device, by problem key and variant id.
        profile: the document of `ge2 probe`, None where there is none.
    """

    device: DeviceProfile
    records: tuple[Record, ...]
    known: Mapping[tuple[str, str], Record]
    profile: Mapping[str, Any] | None

    @property
    def stale(self) -> int:
        """How many measurements are of other sources than the kernels have now."""
        return len(stale(self.device, self.known))

    def families(self) -> dict[str, list[Measured]]:
        """Return the problems of each family that were measured."""
        return {name: _family_data(name, self.known, self.device) for name in primitives.FAMILIES}


def evidence_of(device: DeviceProfile, records: Iterable[Record],
                profile: Mapping[str, Any] | None) -> Evidence:
    """Return what a report of a device is made of; records of others are left out."""
    every = tuple(records)
    return Evidence(device, every, newest(every, device_key(device)), profile)


def page(device: DeviceProfile, records: Iterable[Record],
         profile: Mapping[str, Any] | None) -> str:
    """Return the HTML.

    Args:
        device: whose evidence is shown, with its rates.
        records: evidence; those of other devices are left out.
        profile: the document of `ge2 probe`, None where there is none.
    """
    given = evidence_of(device, records, profile)
    families = given.families()
    parts = [_head(given)]
    parts += [_family(name, measured, given) for name, measured in families.items()]
    if any(families.values()):
        parts += [_roofline(families, device), _model(device, given.records)]
    if profile is not None:
        parts.append(device_section(profile))
    body = "\n".join(filter(None, parts))
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>ge2 lab: {escape(device.name)}</title><style>{STYLE}</style></head>"
            f"<body><main>{body}</main></body></html>\n")


def figures(device: DeviceProfile, records: Iterable[Record],
            profile: Mapping[str, Any] | None) -> list[Figure]:
    """Return the figures of the page, in its order; arguments as for page()."""
    given = evidence_of(device, records, profile)
    families = {name: found for name, found in given.families().items() if found}
    made = [figure for found in families.values() for figure in _family_figures(found)]
    made += [_memory_figure(group, device)
             for group in _by_condition(families.get("rematerialization", []))]
    made += [_roofline_figure(families, device)] if families else []
    return made + (device_figures(profile) if profile is not None else [])


def _family_data(name: str, known: Mapping[tuple[str, str], Record], device: DeviceProfile
                 ) -> list[Measured]:
    found = realizations(name, device.arch)
    result = []
    for problem in sweep.SWEEP[name]():
        key = problem_key(problem)
        pairs = tuple((one, known[key, one.variant.id]) for one in found
                      if (key, one.variant.id) in known)
        if pairs:
            result.append(Measured(problem, pairs))
    return result


def _head(given: Evidence) -> str:
    device, known, profile = given.device, given.known, given.profile
    facts = [f"{device.arch}, {device.sm_count} multiprocessors"]
    if known:
        last = max(known.values(), key=lambda r: r.date)
        day = time.strftime("%Y-%m-%d", time.gmtime(last.date))
        versions = ", ".join(filter(None, (f"driver {last.driver}" if last.driver else "",
                                           f"NVRTC {last.nvrtc}" if last.nvrtc else "")))
        facts.append(f"{len(known)} measurements, the last of {day}"
                     + (f" ({versions})" if versions else ""))
    else:
        facts.append("no measurements yet: ge2 lab bench makes some")
    if older := given.stale:
        facts.append(f"{older} of them are of older sources of their kernels: ge2 lab bench "
                     "measures these again")
    if profile is None:
        facts.append("no device profile yet: ge2 probe makes one")
    items = "".join(f"<li>{escape(f)}</li>" for f in facts)
    links = "".join(f'<a href="#{f}">{f}</a>' for f in primitives.FAMILIES)
    return (f"<h1>Execution primitives on {escape(device.name)}</h1><ul>{items}</ul>"
            f"<nav>{links}</nav>")


def _family(name: str, measured: Sequence[Measured], given: Evidence) -> str:
    family, device = primitives.FAMILIES[name], given.device
    title = f'<h2 id="{name}">{name.capitalize()}</h2>'
    about = "".join(f"<dt>{escape(p.name.replace('_', ' '))}</dt><dd>{escape(p.definition)}</dd>"
                    for p in primitives.of_family(name))
    parts = [title, f"<details><summary>Primitives and contract</summary><dl>{about}"
             f"<dt>contract</dt><dd>{escape(family.signature)}</dd></dl></details>"]
    if not measured:
        return "".join(parts) + "<p>Not measured on this device.</p>"
    parts += [_charts(_family_figures(measured)), "<h3>Where the winner changes</h3>",
              _winners(measured, device), conditions_section(name, given.known, device)]
    if name == "rematerialization":
        parts += ["<h3>Memory against time</h3>", _memory(measured, device)]
    parts += ["<h3>Errors and resources</h3>", _resources(measured)]
    return "".join(parts)


def _charts(figures: Iterable[Figure]) -> str:
    return f'<div class="charts">{"".join(figure.html() for figure in figures)}</div>'


def _by_condition(measured: Sequence[Measured]) -> list[list[Measured]]:
    """Return problems in groups of which only the size differs, small ones first."""
    groups: dict[str, list[Measured]] = {}
    for m in sorted(measured, key=lambda m: sweep.extent(m.problem)):
        groups.setdefault(sweep.condition(m.problem), []).append(m)
    return list(groups.values())


def _family_figures(measured: Sequence[Measured]) -> list[Figure]:
    return [figure for group in _by_condition(measured) for figure in _size_figures(group)]


def _size_figures(group: Sequence[Measured]) -> list[Figure]:
    label, condition = (f(group[0].problem) for f in (sweep.extent_name, sweep.condition))
    times, shares = [], []
    for name in dict.fromkeys(r.name for m in group for r, _ in m.records):
        points = [(float(sweep.extent(m.problem)), record) for m in group
                  for other, record in m.records if other.name == name]
        times.append(Series(name, tuple((x, r.time_us) for x, r in points)))
        shares.append(Series(name, tuple((x, 100 * r.roofline) for x, r in points)))
    return [Figure(f"{condition}: time, us", tuple(times), Axis(label, 2), Axis("us", 10)),
            Figure(f"{condition}: share of the roofline, %", tuple(shares), Axis(label, 2),
                   Axis("%", 0, 0.0))]


def _winners(measured: Sequence[Measured], device: DeviceProfile) -> str:
    rows = []
    for m in measured:
        best, record = m.best
        others = sorted((r for r in m.records if r[0].name != best.name),
                        key=lambda pair: pair[1].time_us)
        second = (f"{others[0][0].name}, {100 * (others[0][1].time_us / record.time_us - 1):.1f} %"
                  " slower") if others else ""
        rows.append((sweep.label(m.problem), best.name, f"{record.time_us:.2f}",
                     f"{100 * record.roofline:.0f} %", second,
                     _why(m, best, record, others[-1] if others else None, device)))
    return table(("problem", "fastest", "us", "roofline", "next", "against the slowest"), rows)


def _why(m: Measured, best: Realization, record: Record,
         slowest: tuple[Realization, Record] | None, device: DeviceProfile) -> str:
    """Return what the records say of the difference to the slowest realization."""
    if slowest is None:
        return ""
    other, bad = slowest
    reasons = [f"{other.name} takes {bad.time_us / record.time_us:.2f} x"]
    mine, theirs = (costs.axes(m.problem, one, device) for one in (best, other))
    if theirs.launches != mine.launches:
        reasons.append(f"launches {theirs.launches} against {mine.launches}")
    if theirs.nbytes > 1.05 * mine.nbytes:
        reasons.append(f"bytes {theirs.nbytes / mine.nbytes:.1f} x")
    if abs(bad.occupancy - record.occupancy) > 0.1:
        reasons.append(f"occupancy {100 * bad.occupancy:.0f} % against "
                       f"{100 * record.occupancy:.0f} %")
    if mine.blocks > 1.5 * theirs.blocks and theirs.blocks < 2 * device.sm_count:
        reasons.append(f"{theirs.blocks} block{'s' * (theirs.blocks > 1)} for "
                       f"{device.sm_count} multiprocessors")
    if bad.spills or record.spills:
        reasons.append(f"spills {bad.spills} against {record.spills} bytes")
    waits = costs.synchronisations(other), costs.synchronisations(best)
    if waits[0] != waits[1]:
        reasons.append(f"{waits[0]} against {waits[1]}")
    return "; ".join(reasons)


def _memory(measured: Sequence[Measured], device: DeviceProfile) -> str:
    rows = [(sweep.label(m.problem), one.name,
             f"{costs.kept_bytes(m.problem, one, device) / 2**20:.2f}", f"{record.time_us:.1f}")
            for m in measured for one, record in m.records]
    drawn = [_memory_figure(group, device) for group in _by_condition(measured)]
    return _charts(drawn) + table(("problem", "kept", "MiB kept", "us"), rows)


def _memory_figure(group: Sequence[Measured], device: DeviceProfile) -> Figure:
    largest = max(group, key=lambda m: bytes_of(m.problem))
    points = [Series(one.name, ((costs.kept_bytes(largest.problem, one, device) / 2**20,
                                 record.time_us),)) for one, record in largest.records]
    return Figure(sweep.label(largest.problem), tuple(points), Axis("kept, MiB", 0, 0.0),
                  Axis("us", 0, 0.0))


def _resources(measured: Sequence[Measured]) -> str:
    worst: dict[str, list[Record]] = {}
    for m in measured:
        for one, record in m.records:
            worst.setdefault(one.name, []).append(record)
    rows = []
    for name, records in worst.items():
        errors = [r.ulp for r in records]
        rows.append((name, f"{max(errors):.1f}", f"{max(r.max_abs for r in records):.2g}",
                     max(r.registers for r in records), max(r.smem for r in records),
                     max(r.spills for r in records),
                     f"{100 * max(r.occupancy for r in records):.0f} %",
                     f"{100 * max(r.spread for r in records):.1f} %"))
    return table(("realization", "ulp", "max error", "registers", "shared bytes", "spills",
                  "occupancy", "largest spread"), rows)


def _roofline(families: Mapping[str, Sequence[Measured]], device: DeviceProfile) -> str:
    return (f'<h2 id="roofline">Roofline</h2><p>Operations are estimates per element; the roof is '
            f"{device.copy_gbps:.0f} GB/s and {device.fp32_tflops:.1f} TFLOP/s of f32; products of "
            "narrower types may lie above.</p>" + _charts([_roofline_figure(families, device)]))


def _roofline_figure(families: Mapping[str, Sequence[Measured]], device: DeviceProfile) -> Figure:
    series = []
    for name, measured in families.items():
        points = []
        for m in measured:
            for one, record in m.records:
                axes = costs.axes(m.problem, one, device)
                flops = axes.flops * axes.blocks
                points.append((flops / axes.nbytes, flops / record.time_us / 1e6))
        series.append(Series(name, tuple(sorted(points)), joined=False))
    spots = [p for s in series for p in s.points]
    low, high = min(p[0] for p in spots) / 2, max(p[0] for p in spots) * 2
    ridge = device.fp32_tflops * 1e3 / device.copy_gbps
    corners = sorted({low, min(max(ridge, low), high), high})
    roof = Series("roof", tuple((x, min(x * device.copy_gbps / 1e3, device.fp32_tflops))
                                for x in corners))
    return Figure("all measurements", (*series, roof), Axis("operations per byte", 10),
                  Axis("T operations/s", 10))


def _model(device: DeviceProfile, records: Sequence[Record]) -> str:
    rows = []
    for score in evaluate(device, records):
        found = score.as_dict()
        rows.append((score.family, found["problems"], *(f"{100 * float(found[k]):.1f} %" for k in (
            "loss_median", "loss_p90", "error_median", "error_p90"))))
    return ('<h2 id="model">Cost model on problems that it was not fitted on</h2>' + table(
        ("family", "problems", "loss of its pick, median", "90th percentile",
         "error of times, median", "90th percentile"), rows))
