"""The report's section on the device: the curves and figures of `ge2 probe`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .svg import Axis, Figure, Series

Point = Mapping[str, Any]


def device_section(profile: Mapping[str, Any]) -> str:
    """Return the section; charts without points are left out."""
    sections: Mapping[str, Sequence[Point]] = profile["sections"]
    rows = "".join(f"<tr><td>{escape(name.replace('_', ' '))}</td><td>{value:g}</td></tr>"
                   for name, value in profile["summary"].items())
    drawn = "".join(figure.html() for figure in device_figures(profile))
    waits = "".join(f"<tr><td>{name} {escape(_place(p))}</td>"
                    f"<td>{p['value']:g} {p['value_unit']}</td></tr>"
                    for name in ("latency", "launch", "barrier", "rate")
                    for p in sections.get(name, ()))
    return (f'<h2 id="device">Device profile</h2><div class="charts">{drawn}</div>'
            f'<div class="charts"><div class="scroll"><table><tbody>{rows}</tbody></table></div>'
            f'<div class="scroll"><table><tbody>{waits}</tbody></table></div></div>')


def _place(point: Point) -> str:
    return " ".join(str(v) for k, v in point.items()
                    if k not in ("value", "value_unit", "time_us", "spread"))


def device_figures(profile: Mapping[str, Any]) -> list[Figure]:
    """Return the curves, empty ones too."""
    sections: Mapping[str, Sequence[Point]] = profile["sections"]
    gbps = Axis("GB/s", 0, 0.0)

    def curve(caption: str, section: str, key: str, axis: Axis, by: str = "") -> Figure:
        groups: dict[str, dict[float, float]] = {}
        for p in sections.get(section, ()):
            key_of = p.get(by, "")
            label = key_of if isinstance(key_of, str) else f"{by}: {key_of}"
            group = groups.setdefault(label, {})
            x = float(p[key])
            group[x] = max(group.get(x, 0.0), float(p["value"]))
        return Figure(caption, tuple(Series(name, tuple(sorted(points.items())))
                                     for name, points in groups.items()), axis, gbps)

    return [
        curve("bandwidth against size", "size", "bytes", Axis("bytes", 2), by="mode"),
        curve("reads of a set again and again", "l2", "bytes", Axis("bytes", 2)),
        curve("reads against bytes in flight per multiprocessor", "in flight", "bytes_per_sm",
              Axis("bytes", 2), by="vectors"),
        curve("reads against rows of a 8 KiB tile", "tile shape", "row_bytes",
              Axis("bytes of a row", 2)),
        curve("useful reads against stride", "stride", "words", Axis("stride, words", 2)),
        curve("cp.async ring against stages", "staging", "stages", Axis("stages")),
        curve("copy against occupancy", "occupancy", "threads_per_sm", Axis("threads")),
        curve("shared memory against stride", "shared", "stride", Axis("stride, words", 2),
              by="words"),
    ]
