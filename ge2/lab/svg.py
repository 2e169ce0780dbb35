"""Charts as inline SVG (log axes, one line per series, colours from the page's style), tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 10, 40
COLOURS = 12


@dataclass(frozen=True, slots=True)
class Series:
    """A line, or points that nothing joins: its name and (x, y), x ascending."""

    name: str
    points: tuple[tuple[float, float], ...]
    joined: bool = True


@dataclass(frozen=True, slots=True)
class Axis:
    """How an axis is drawn: its label, whether it is logarithmic (base 2 or 10), its range."""

    label: str
    base: int = 0
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A captioned chart.

    Attributes:
        caption: above it. series, x, y: what it shows.
    """

    caption: str
    series: tuple[Series, ...]
    x: Axis
    y: Axis

    @property
    def is_empty(self) -> bool:
        """Whether no series has a point."""
        return not any(one.points for one in self.series)

    def html(self) -> str:
        """Return it as HTML; "" where it is empty."""
        if self.is_empty:
            return ""
        drawing = chart(self.series, self.x, self.y)
        return f"<figure><figcaption>{escape(self.caption)}</figcaption>{drawing}</figure>"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table that scrolls sideways on small screens."""
    head = "".join(f"<th>{escape(h)}</th>" for h in header)
    lines = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>"
                    for row in rows)
    return (f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody>'
            "</table></div>")


def chart(series: Sequence[Series], x: Axis, y: Axis) -> str:
    """Return a chart with a legend; "" where no series has a point."""
    shown = [s for s in series if s.points]
    if not shown:
        return ""
    place_x = _Scale(x, [p[0] for s in shown for p in s.points], LEFT, WIDTH - RIGHT)
    place_y = _Scale(y, [p[1] for s in shown for p in s.points], HEIGHT - BOTTOM, TOP)
    body = [_grid(place_x, place_y, x, y)]
    for number, one in enumerate(shown):
        colour = f"c{number % COLOURS}"
        spots = [(place_x.at(px), place_y.at(py)) for px, py in one.points]
        if one.joined and len(spots) > 1:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in spots)
            body.append(f'<polyline class="line {colour}" points="{path}"/>')
        body += [f'<circle class="dot {colour}" cx="{a:.1f}" cy="{b:.1f}" r="3">'
                 f"<title>{escape(one.name)}: {number_text(px)}, {number_text(py)}</title></circle>"
                 for (a, b), (px, py) in zip(spots, one.points, strict=True)]
    legend = "".join(f'<span><i class="key c{n % COLOURS}"></i>{escape(s.name)}</span>'
                     for n, s in enumerate(shown)) if len(shown) > 1 else ""
    title = escape(f"{y.label} against {x.label}")
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
            f'{"".join(body)}</svg><div class="legend">{legend}</div>')


class _Scale:
    """From values to places on one axis."""

    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float) -> None:
        self.base, self._start, self._end = axis.base, start, end
        low = axis.low if axis.low is not None else min(values)
        high = axis.high if axis.high is not None else max(values)
        if self.base:
            low, high = math.log(low, self.base), math.log(high, self.base)
            low, high = (math.floor(low), math.ceil(high)) if self.base == 10 else (low, high)
        elif axis.low is None:
            low = min(low, 0.0)
        self.low, self.high = low, high if high > low else low + 1.0

    def at(self, value: float) -> float:
        """Return the place of a value."""
        mapped = math.log(value, self.base) if self.base else value
        share = (mapped - self.low) / (self.high - self.low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        """Return at most six round values."""
        if self.base:
            first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
            every = max(1, -(-(last - first + 1) // 6))
            return [float(self.base) ** e for e in range(first, last + 1, every)]
        span = self.high - self.low
        step = 10.0 ** math.floor(math.log10(span / 4))
        step *= next(f for f in (1, 2, 5, 10) if span / (step * f) <= 5)
        count = int((self.high - self.low) / step + 1e-9)
        start = math.ceil(self.low / step - 1e-9)
        return [(start + i) * step for i in range(count + 1) if (start + i) * step <= self.high]


def _grid(across: _Scale, up: _Scale, x: Axis, y: Axis) -> str:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for tick in across.ticks():
        at = across.at(tick)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}"/>'
                     f'<text x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">'
                     f"{number_text(tick, across.base)}</text>")
    for tick in up.ticks():
        at = up.at(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
                     f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">'
                     f"{number_text(tick, up.base)}</text>")
    middle = (LEFT + right) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.label)}'
                 f'</text><text transform="translate(12 {(TOP + bottom) / 2}) rotate(-90)" '
                 f'text-anchor="middle">{escape(y.label)}</text>')
    return "".join(parts)


def number_text(value: float, base: int = 0) -> str:
    """Return a short number: 64k, 16M on binary axes, 1.5k elsewhere."""
    unit = 1024.0 if base == 2 else 1000.0
    for limit, suffix in ((unit**3, "G"), (unit**2, "M"), (unit, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"
