"""The report's figures as PNG files, by matplotlib."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import Invalid
from .svg import Axis, Figure, number_text


def write_figures(figures: Iterable[Figure], folder: Path) -> list[Path]:
    """Write each figure that has points and return the files.

    Raises:
        Invalid: matplotlib is not installed, or the folder cannot be written.
    """
    try:
        import matplotlib
    except ImportError:
        raise Invalid("drawing needs matplotlib", hint="pip install 'ge2[plot]'") from None
    matplotlib.use("Agg")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_write(number, figure, folder)
                for number, figure in enumerate(figures) if not figure.is_empty]
    except OSError as error:
        raise Invalid(f"{folder} cannot be written", found=error.strerror) from error


def _write(number: int, figure: Figure, folder: Path) -> Path:
    from matplotlib import pyplot

    made, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    shown = [one for one in figure.series if one.points]
    for one in shown:
        xs, ys = zip(*one.points, strict=True)
        axes.plot(xs, ys, marker="o", markersize=4, label=one.name,
                  linestyle="-" if one.joined else "none")
    for axis, name in ((figure.x, "x"), (figure.y, "y")):
        _scale(axes, axis, name)
    axes.set_title(figure.caption, fontsize=10)
    axes.grid(alpha=0.3)
    if len(shown) > 1:  # beside the axes, where it hides no line
        made.legend(fontsize=8, loc="outside right upper")
    stem = re.sub(r"[^a-z0-9]+", "-", figure.caption.lower()).strip("-")
    path = folder / f"{number:02}-{stem}.png"
    made.savefig(path, dpi=150)
    pyplot.close(made)
    return path


def _scale(axes: Any, axis: Axis, name: str) -> None:
    """Scale and label an axis as the page does: plain numbers on logarithmic axes, too."""
    from matplotlib import ticker

    getattr(axes, f"set_{name}label")(axis.label)
    if axis.base:
        getattr(axes, f"set_{name}scale")("log", base=axis.base)
    low, high = getattr(axes, f"get_{name}lim")()
    drawn = getattr(axes, f"{name}axis")
    if not axis.base and axis.low is not None:  # what lies at an end stays whole
        getattr(axes, f"set_{name}lim")(min(axis.low, low), high)
    if axis.base:
        drawn.set_minor_formatter(ticker.NullFormatter())
    if axis.base == 10 and high < 30 * low:  # too few decades for a tick each
        drawn.set_major_locator(ticker.LogLocator(10, subs=(1, 2, 5)))
    drawn.set_major_formatter(ticker.FuncFormatter(lambda v, _: number_text(v, axis.base)))
