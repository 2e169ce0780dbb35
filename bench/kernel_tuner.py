"""Kernel Tuner on the same spaces and budgets, on the same recorded evidence (its simulation mode).

    python -m bench.kernel_tuner EVIDENCE.jsonl ... --out FOLDER [--trials 16]

Needs `pip install kernel_tuner` and no GPU. Every candidate of ge2 is one configuration there, with
the kernel as one more parameter; its choice is the fastest configuration that it evaluated.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from ge2.evidence.device import DeviceProfile, profile_for
from ge2.evidence.exchange import read_file
from ge2.evidence.keys import problem_key
from ge2.evidence.record import Record
from ge2.tune.problems import Task
from ge2.tune.space import Space, build_space

from .targets import Section, Verdict
from .tuning import current_times, geomean, problems, replayed

STRATEGIES = ("random_sample", "genetic_algorithm", "simulated_annealing", "bayes_opt")
ABSENT = "-"


def configurations(space: Space, times: dict[str, float]) -> tuple[dict[str, list[Any]], dict]:
    """Return Kernel Tuner's parameters and its cache of the measured candidates."""
    measured = [e.variant for e in space.entries if e.variant.id in times]
    names = list(dict.fromkeys(n for v in measured for n, _ in v.params))
    rows = {}
    for variant in measured:
        row = {"kernel": variant.kernel.name,
               **{n: str(variant.param_map.get(n, ABSENT)) for n in names}}
        rows[",".join(row.values())] = {
            **row, "time": times[variant.id] / 1e3, "compile_time": 1.0, "verification_time": 1.0,
            "benchmark_time": 1.0, "times": [times[variant.id] / 1e3]}
    params = {n: sorted({row[n] for row in rows.values()}) for n in ("kernel", *names)}
    return params, rows


def simulated(space: Space, times: dict[str, float], strategy: str, trials: int, seed: int
              ) -> float:
    """Return the best time over that of Kernel Tuner's choice."""
    import kernel_tuner

    params, rows = configurations(space, times)
    names = list(params)

    legal = {tuple(sorted(key.split(","))) for key in rows}

    def allowed(*values: str, **named: str) -> bool:
        # Positional values come in an order of the solver's own.
        return tuple(sorted(values or named.values())) in legal

    random.seed(seed)
    np.random.seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache.json"
        cache.write_text(json.dumps({
            "device_name": "H200", "kernel_name": "k", "problem_size": [1],
            "tune_params_keys": names, "tune_params": params, "objective": "time",
            "cache": rows}))
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            results, _ = kernel_tuner.tune_kernel(
                "k", "__global__ void k() {}", 1, [], params, lang="CUDA", cache=str(cache),
                simulation_mode=True, quiet=True, strategy=strategy,
                restrictions=[allowed],
                strategy_options={"max_fevals": trials})
    found = [r["time"] for r in results if isinstance(r.get("time"), float)]
    return min(times.values()) / 1e3 / min(found) if found else 0.0


def compare(tasks: Sequence[Task], by_problem: dict[str, list[Record]], device: DeviceProfile,
            trials: int, seeds: int) -> dict[str, list[float]]:
    """Return each searcher's share of the best time, per problem."""
    shares: dict[str, list[float]] = {}
    for task in tasks:
        records = by_problem.get(problem_key(task.problem), [])
        space = build_space(task.problem, device)
        times = current_times(space, records)
        if len(times) <= trials or space.default.variant.id not in times:
            continue  # who may try everything finds the best
        shares.setdefault("ge2 default", []).append(
            min(times.values()) / times[space.default.variant.id])
        shares.setdefault("ge2 guided", []).append(
            replayed(space, records, device, "guided", trials, 0))
        for strategy in STRATEGIES:
            each = [simulated(space, times, strategy, trials, seed) for seed in range(seeds)]
            shares.setdefault(f"Kernel Tuner {strategy}", []).append(
                geomean([max(share, 1e-3) for share in each]))
    return shares


def _beside(shares: dict[str, list[float]], trials: int) -> list[Verdict]:
    """Return whether ge2's search is at least as good as the best strategy of Kernel Tuner."""
    means = {name: geomean(values) for name, values in shares.items()}
    others = {name: mean for name, mean in means.items() if name.startswith("Kernel Tuner")}
    if not others:
        return []
    best = max(others, key=lambda name: others[name])
    ratio = means["ge2 guided"] / others[best]
    return [Verdict("search on the same space and budget, Kernel Tuner", f"{trials} trials", 1.0,
                    ratio, ratio >= 1.0, note=f"x {best}")]


@click.command(help=__doc__)
@click.argument("evidence", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--trials", type=int, multiple=True, default=(8, 16))
@click.option("--seeds", type=int, default=5)
@click.option("--arch", default="sm_90a")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="result folder")
def main(evidence: tuple[Path, ...], trials: tuple[int, ...], seeds: int, arch: str,
         out: Path) -> None:
    """See the module."""
    section = Section(out / "kernel_tuner.json")
    device = profile_for(arch)
    by_problem: dict[str, list[Record]] = {}
    for path in evidence:
        for item in read_file(path):
            if isinstance(item, Record):
                by_problem.setdefault(item.problem, []).append(item)
    for count in trials:
        shares = compare(problems(device), by_problem, device, count, seeds)
        section.add(f"{count} trials", shares, _beside(shares, count))
        for name, values in shares.items():
            click.echo(f"{count:3} trials  {name:36} {geomean(values):.4f} of the best, worst "
                       f"{min(values):.3f}, {len(values)} problems")


if __name__ == "__main__":
    main()
