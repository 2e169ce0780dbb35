"""One call on a GPU machine: tests, checks and timings in one process, one table, one JSON file.

    python -m bench.gpu_check --out FOLDER [--cache FOLDER] [--only tests,launch,gemm,...]

With --cache, kernels come from a cache folder that was filled elsewhere (jit.compile takes an
arch and needs no GPU); what is missing is compiled here. A section that fails is reported and
does not stop the others.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

import click

from .gpu_sections import SECTIONS, Row


def run(names: list[str], out: Path) -> list[Row]:
    """Run sections and return their rows; also writes rows.json and prints as it goes."""
    from ge2.runtime.device import cuda_device

    device = cuda_device(0)
    rows = [Row("device", "name", device.profile.name, note=device.profile.arch)]
    for name in names:
        start = time.perf_counter()
        try:
            for row in SECTIONS[name](device):
                rows.append(row)
                show(row)
        except Exception as error:
            traceback.print_exc()
            rows.append(Row(name, "failed", f"{type(error).__name__}: {error}"[:500]))
            show(rows[-1])
        rows.append(Row(name, "section", round(time.perf_counter() - start, 1), "s"))
        show(rows[-1])
        (out / "rows.json").write_text(json.dumps([asdict(r) for r in rows], indent=1))
    return rows


def show(row: Row) -> None:
    """Print one row."""
    value = f"{row.value:.4g}" if isinstance(row.value, float) else str(row.value)
    click.echo(f"{row.section:12} {row.name:58} {value:>12} {row.unit:8} {row.note}")


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="folder of results")
@click.option("--cache", type=click.Path(path_type=Path), help="folder of compiled kernels")
@click.option("--only", default="", help="comma list of sections")
def main(out: Path, cache: Path | None, only: str) -> None:
    """See the module."""
    out.mkdir(parents=True, exist_ok=True)
    os.environ["GE2_CACHE_DIR"] = str(cache.absolute() if cache else out.absolute() / "cache")
    names = only.split(",") if only else list(SECTIONS)
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        raise click.UsageError(f"no section {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    rows = run(names, out)
    sys.exit(any(row.name == "failed" for row in rows))


if __name__ == "__main__":
    main()
