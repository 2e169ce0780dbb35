"""The report's figures as PNG files, by matplotlib."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ..errors import Invalid
from .svg import Axis, Figure


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

    made, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for one in figure.series:
        if one.points:
            xs, ys = zip(*one.points, strict=True)
            axes.plot(xs, ys, marker="o", markersize=4, label=one.name,
                      linestyle="-" if one.joined else "none")
    for axis, name in ((figure.x, "x"), (figure.y, "y")):
        _scale(axes, axis, name)
    axes.set_title(figure.caption, fontsize=10)
    axes.grid(alpha=0.3)
    if sum(bool(one.points) for one in figure.series) > 1:
        axes.legend(fontsize=8)
    stem = re.sub(r"[^a-z0-9]+", "-", figure.caption.lower()).strip("-")
    path = folder / f"{number:02}-{stem}.png"
    made.savefig(path, dpi=150)
    pyplot.close(made)
    return path


def _scale(axes: object, axis: Axis, name: str) -> None:
    getattr(axes, f"set_{name}label")(axis.label)
    if axis.base:
        getattr(axes, f"set_{name}scale")("log", base=axis.base)
    elif axis.low is not None:
        getattr(axes, f"set_{name}lim")(**{"left" if name == "x" else "bottom": axis.low})
