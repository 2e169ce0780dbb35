"""The report's section on the device: the curves and figures of `ge2 probe`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .svg import Axis, Series, chart

Point = Mapping[str, Any]


def device_section(profile: Mapping[str, Any]) -> str:
    """Return the section; charts without points are left out."""
    sections: Mapping[str, Sequence[Point]] = profile["sections"]
    figures = [f"<figure><figcaption>{escape(caption)}</figcaption>{drawing}</figure>"
               for caption, drawing in _charts(sections) if drawing]
    rows = "".join(f"<tr><td>{escape(name.replace('_', ' '))}</td><td>{value:g}</td></tr>"
                   for name, value in profile["summary"].items())
    waits = "".join(f"<tr><td>{escape(_place(p))}</td>"
                    f"<td>{p['value']:g} {p['value_unit']}</td></tr>"
                    for name in ("latency", "launch", "barrier", "rate")
                    for p in sections.get(name, ()))
    return (f'<h2 id="device">Device profile</h2><div class="charts">{"".join(figures)}</div>'
            f'<div class="charts"><div class="scroll"><table><tbody>{rows}</tbody></table></div>'
            f'<div class="scroll"><table><tbody>{waits}</tbody></table></div></div>')


def _place(point: Point) -> str:
    return " ".join(str(v) for k, v in point.items()
                    if k not in ("value", "value_unit", "time_us", "spread"))


def _charts(sections: Mapping[str, Sequence[Point]]) -> list[tuple[str, str]]:
    gbps = Axis("GB/s", 0, 0.0)

    def curve(section: str, key: str, axis: Axis, *, by: str = "") -> str:
        groups: dict[str, dict[float, float]] = {}
        for p in sections.get(section, ()):
            group = groups.setdefault(str(p.get(by, "")), {})
            x = float(p[key])
            group[x] = max(group.get(x, 0.0), float(p["value"]))
        return chart([Series(name, tuple(sorted(points.items())))
                      for name, points in groups.items()], axis, gbps)

    return [
        ("bandwidth against size", curve("size", "bytes", Axis("bytes", 2), by="mode")),
        ("reads of a set again and again", curve("l2", "bytes", Axis("bytes", 2))),
        ("reads against bytes in flight per multiprocessor",
         curve("in flight", "bytes_per_sm", Axis("bytes", 2), by="vectors")),
        ("reads against rows of a 8 KiB tile", curve("tile shape", "row_bytes",
                                                     Axis("bytes of a row", 2))),
        ("useful reads against stride", curve("stride", "words", Axis("words", 2))),
        ("cp.async ring against stages", curve("staging", "stages", Axis("stages"))),
        ("copy against occupancy", curve("occupancy", "threads_per_sm", Axis("threads"))),
        ("shared memory against stride", curve("shared", "stride", Axis("words", 2), by="words")),
    ]
