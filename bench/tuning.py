"""How good the search is: exhaustive search first, then searches of 16 and 40 trials against it.

    python -m bench.tuning --out FOLDER [--seconds 40] [--evidence FILE ...]

The problems and their spaces are those of the standard sweep. "Best" is the best time in all the
evidence that is given or measured here. What a former call measured and wrote to evidence.jsonl is
not measured again, so that short calls add up to one exhaustive search.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from ge2.evidence.costmodel import CostModel
from ge2.evidence.exchange import read_file, write_file
from ge2.evidence.keys import device_key, problem_key
from ge2.evidence.record import Record
from ge2.evidence.records import Store
from ge2.runtime.device import probe
from ge2.tune.describe import Describer
from ge2.tune.problems import Request, Task, tasks_for, unique
from ge2.tune.runner import ReplayRunner
from ge2.tune.search import Limits, Search
from ge2.tune.session import Options, Session, corrections
from ge2.tune.space import Space, build_space
from ge2.tune.worker import Target

from .targets import Section, Verdict

OPERATORS = ("GEMM_BIAS_ACT", "ROW", "ELEMENTWISE", "CONV2D")
SEEDS = 5


def problems(device: Any, most: int = 0) -> list[Task]:
    """Return the standard sweep, its families interleaved, so that a short run sees all."""
    groups = [tasks_for(Request(op), device) for op in OPERATORS]
    woven = [t for i in range(max(map(len, groups))) for g in groups for t in g[i:i + 1]]
    return unique(woven)[:most or None]


def exhaustive(tasks: Sequence[Task], store: Path, seconds: float) -> list[Any]:
    """Measure every candidate of every problem that the time allows."""
    options = Options(trials=10_000, budget=seconds, strategy="exhaustive")
    # Weights that fall so fast give each problem in turn all the time that is left.
    first = [replace(task, weight=10.0**-i) for i, task in enumerate(tasks)]
    session = Session(first, options, store, [Target()])
    return session.run()


def replayed(space: Space, records: Sequence[Record], device: Any, strategy: str, trials: int,
             seed: int) -> float:
    """Return the best known time over the time of a search's choice, on recorded evidence."""
    runner = ReplayRunner(records, device)
    search = Search(space, runner, Store(None),
                    Describer(device), strategy=strategy, seed=seed)
    outcome = search.run(Limits(trials))
    times = current_times(space, records)
    assert outcome.decision is not None
    return min(times.values()) / times[outcome.decision.variant]


def current_times(space: Space, records: Sequence[Record]) -> dict[str, float]:
    """Return the measured times of the candidates that there are now."""
    ids = {e.variant.id for e in space.entries}
    return {r.variant: r.time_us for r in records if r.is_ok and r.variant in ids}


def geomean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else float("nan")


def quality(tasks: Sequence[Task], by_problem: dict[str, list[Record]], device: Any
            ) -> list[dict[str, Any]]:
    """Return per problem how near the default, the model's pick and short searches come."""
    rows = []
    for task in tasks:
        records = by_problem.get(problem_key(task.problem), [])
        others = [r for key, group in by_problem.items() if key != problem_key(task.problem)
                  for r in group]
        fitted = CostModel(device, corrections(others, device))
        space = build_space(task.problem, device)
        times = current_times(space, records)
        if not times or space.default.variant.id not in times:
            continue
        best = min(times.values())
        timed = [e for e in space.entries if e.variant.id in times]
        model = min(timed, key=lambda e: e.predicted_us)
        again = build_space(task.problem, device, fitted)
        learned = min((e for e in again.entries if e.variant.id in times),
                      key=lambda e: e.predicted_us)
        row: dict[str, Any] = {
            "problem": task.label, "op": task.problem.op_type, "space": len(space.entries),
            "measured": len(times), "best_us": best,
            "best": min(times, key=lambda v: times[v]),
            "default": best / times[space.default.variant.id],
            "model": best / times[model.variant.id],
            "learned": best / times[learned.variant.id],
            "wrong": [r.variant for r in records if r.state == "wrong"],
            "failed": [f"{r.variant}: {r.reason[:120]}" for r in records
                       if not r.is_ok and r.state != "wrong"]}
        for strategy in ("guided", "random", "evolutionary"):
            for trials in (8, 16, 40):
                seeds = 1 if strategy == "guided" else SEEDS
                row[f"{strategy}{trials}"] = geomean([
                    replayed(space, records, device, strategy, trials, s) for s in range(seeds)])
        rows.append(row)
    return rows


def model_error(tasks: Sequence[Task], by_problem: dict[str, list[Record]], device: Any
                ) -> dict[str, float]:
    """Return the median relative error of predicted times, each problem left out of its fit."""
    errors: dict[str, list[float]] = {}
    for task in tasks:
        key = problem_key(task.problem)
        others = [r for other, group in by_problem.items() if other != key for r in group]
        space = build_space(task.problem, device, CostModel(device, corrections(others, device)))
        times = {r.variant: r.time_us for r in by_problem.get(key, []) if r.is_ok}
        errors.setdefault(task.problem.op_type, []).extend(
            abs(e.predicted_us / times[e.variant.id] - 1)
            for e in space.entries if e.variant.id in times)
    return {op: statistics.median(e) for op, e in errors.items() if e}


def fresh_searches(tasks: Sequence[Task], seconds: float) -> list[dict[str, Any]]:
    """Search new problems with nothing known, compile included, twice with other seeds."""
    rows = []
    end = time.monotonic() + seconds
    for task in tasks:
        if time.monotonic() > end:
            break
        for seed in (0, 1):
            start = time.monotonic()
            session = Session([task], Options(seed=seed), None, [Target()])
            (result,) = session.run()
            outcome = result.outcome
            decision = outcome.decision if outcome else None
            rows.append({
                "problem": task.label, "seed": seed, "seconds": time.monotonic() - start,
                "search_seconds": outcome.seconds if outcome else 0.0, "error": result.error,
                "variant": decision.variant if decision else "",
                "time_us": decision.time_us if decision else 0.0,
                "default_us": decision.default_us if decision else 0.0})
    return rows


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--seconds", type=float, default=40.0, help="for exhaustive search")
@click.option("--fresh", type=float, default=0.0, help="seconds for searches with nothing known")
@click.option("--evidence", type=click.Path(path_type=Path), multiple=True)
@click.option("--most", type=int, default=0, help="problems at most; 0 = all")
def main(out: Path, seconds: float, fresh: float, evidence: tuple[Path, ...], most: int) -> None:
    """See the module."""
    out.mkdir(parents=True, exist_ok=True)
    device = probe(0)
    tasks = problems(device, most)
    store_path = out / "evidence.db"
    with Store(store_path) as store:
        for path in evidence:
            if path.exists():
                store.put(*read_file(path))
    start = time.monotonic()
    if seconds:
        results = exhaustive(tasks, store_path, seconds)
        for result in results:
            if result.error:
                click.echo(f"{result.task.label}: {result.error[:200]}")
        done = sum(r.outcome is not None and r.outcome.complete for r in results)
        click.echo(f"exhaustive: {done} of {len(tasks)} problems, {time.monotonic() - start:.0f} s")
    with Store(store_path) as store:
        write_file(out / "evidence.jsonl", [*store.records(device=device_key(device)),
                                            *store.decisions(device=device_key(device))])
        by_problem: dict[str, list[Record]] = {}
        for record in store.records(device=device_key(device)):
            by_problem.setdefault(record.problem, []).append(record)
    rows = quality(tasks, by_problem, device)
    report(rows, model_error(tasks, by_problem, device))
    searched = fresh_searches(tasks, fresh) if fresh else []
    for row in searched:
        click.echo(f"fresh {row['problem']:32} {row['seconds']:6.1f} s  {row['time_us']:9.2f} us  "
                   f"default {row['default_us']:9.2f}  {row['variant']} {row['error'][:80]}")
    section = Section(out / "tuning.json", {"quality": rows, "fresh": searched})
    section.conclude(verdicts(rows, searched))
    section.summary()


def verdicts(rows: Sequence[dict[str, Any]], searched: Sequence[dict[str, Any]]
             ) -> Iterator[Verdict]:
    """Yield what the targets say of searches on evidence, and of those with nothing known."""
    for trials, goal in ((16, 0.96), (40, 0.99)):
        if rows:
            value = geomean([row[f"guided{trials}"] for row in rows])
            yield Verdict(f"best time over a search's within {trials} trials",
                          f"geometric mean of {len(rows)} problems (30 wanted)", goal, value,
                          value >= goal and len(rows) >= 30)
    for row in searched:
        yield Verdict("seconds for a new problem, compile included", row["problem"], 10.0,
                      row["seconds"], row["seconds"] <= 10.0, at_most=True, unit="s")
        if row["time_us"]:
            ratio = row["default_us"] / row["time_us"]
            yield Verdict("tuned, default", row["problem"], 1.0, ratio, ratio >= 1.0)
    for first, second in pairwise(searched):
        if first["problem"] == second["problem"] and min(first["time_us"], second["time_us"]):
            apart = abs(math.log(first["time_us"] / second["time_us"]))
            yield Verdict("two searches, how far apart", first["problem"], 0.01, apart,
                          apart <= 0.01, at_most=True)


def report(rows: Sequence[dict[str, Any]], errors: dict[str, float]) -> None:
    """Print shares of the best time."""
    columns = ["default", "model", "learned", "guided8", "guided16", "guided40", "random16",
               "evolutionary16"]
    click.echo(f"{'problem':34} {'space':>5} {'best us':>9} " + " ".join(
        f"{c[-9:]:>9}" for c in columns) + "  best")
    for row in rows:
        click.echo(f"{row['problem'][:34]:34} {row['space']:5} {row['best_us']:9.2f} " + " ".join(
            f"{row[c]:9.3f}" for c in columns) + f"  {row['best']}")
        for text in (*row["wrong"], *row["failed"]):
            click.echo(f"    not right: {text}")
    for op in (*OPERATORS, ""):
        group = [r for r in rows if r["op"] == op or not op]
        if group:
            click.echo(f"{op or 'all':34} {len(group):5} {'':9} " + " ".join(
                f"{geomean([r[c] for r in group]):9.3f}" for c in columns))
    click.echo("median error of predicted times: " + ", ".join(
        f"{op} {100 * e:.0f} %" for op, e in errors.items()))


if __name__ == "__main__":
    main()
