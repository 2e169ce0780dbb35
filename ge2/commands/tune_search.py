"""What `ge2 tune search` does."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from .. import launch_table
from ..compiler.kernels import registry
from ..errors import EnvironmentUnusable, Ge2Error, Invalid, near_matches
from ..evidence.device import DeviceProfile, profile_for
from ..evidence.record import as_plain
from ..evidence.records import EvidenceError, default_path
from ..tune import session as sessions
from ..tune.problems import (
    Request,
    Task,
    known_operators,
    model_tasks,
    read_shapes,
    tasks_for,
    unique,
)
from ..tune.session import EFFORTS, Options, Result, Session
from ..tune.space import build_space
from ..tune.strategies import check_strategy
from ..tune.worker import Target
from .output import Report, bad, good, human_time
from .tune_progress import Progress

DEFAULT_ARCH = "sm_90a"
NO_CANDIDATE = 5


def run_search(report: Report, options: Mapping[str, Any]) -> int:
    """Tune what the options say and return the exit code."""
    if options["jobs"]:
        os.environ["GE2_JOBS"] = str(options["jobs"])
    check_names(options)
    offline = options["dry_run"] or options["compile_only"]
    targets = [] if offline else _targets(options)
    device = profile_of(options, offline)
    tasks = _tasks(options, device, report)
    if not tasks:
        raise Invalid("there is nothing to tune: no step of the model runs a kernel")
    if options["compile_only"]:
        return compile_all(tasks, device, report)
    if options["dry_run"]:
        return dry_run(tasks, device, _settings(options), report)
    return _search(tasks, targets, options, report)


def check_names(options: Mapping[str, Any]) -> None:
    """Refuse what can be refused before any device is touched.

    Raises:
        Invalid: an operator or strategy that does not exist; names near matches.
    """
    known = known_operators()
    for op in options["ops"]:
        if op.upper() not in known:
            raise Invalid(f"no operator is named {op!r}",
                          hint=near_matches(op.upper(), known) or "ge2 ops lists them")
    check_strategy(options["strategy"])


# -- what and where -------------------------------------------------------------------------------


def _targets(options: Mapping[str, Any]) -> list[Target]:
    limit = None
    if options["atol"] is not None or options["rtol"] is not None:
        limit = (options["atol"] or 0.0, options["rtol"] or 0.0)
    if options["backend"] == "emulate":
        return [Target("emulate", arch=options["arch"] or DEFAULT_ARCH, limit=limit)]
    if options["arch"]:
        raise Invalid("--arch goes with --dry-run, --compile-only or --backend emulate")
    from ..model.backend import cuda_device_count, has_cupy

    count, why = cuda_device_count()
    if not count:
        raise EnvironmentUnusable(f"tuning needs a GPU: {why}")
    if not has_cupy():
        raise EnvironmentUnusable("tuning needs cupy, which is not installed")
    return [Target("cuda", index, limit=limit) for index in _indices(options, count)]


def _indices(options: Mapping[str, Any], count: int) -> list[int]:
    from ..runtime.device import default_index

    text = options["devices"]
    if text is None:
        wanted = [default_index() if options["device"] is None else options["device"]]
    else:
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isdecimal() for part in parts):
            raise Invalid("--devices is a list of indices", found=repr(text), wanted="such as 0,1")
        wanted = list(dict.fromkeys(int(part) for part in parts))
    for index in wanted:
        if index >= count:
            raise EnvironmentUnusable("there is no such GPU", argument="device", found=index,
                                      wanted=f"0 to {count - 1}")
    return wanted


def profile_of(options: Mapping[str, Any], offline: bool) -> DeviceProfile:
    """Return the device to tune for: --arch, else the GPU, else (offline) an H200."""
    if options["arch"] or options["backend"] == "emulate":
        return profile_for(options["arch"] or DEFAULT_ARCH)
    from ..runtime import driver
    from ..runtime.device import default_index, probe

    if offline and not driver.is_available():
        return profile_for(DEFAULT_ARCH)
    return probe(default_index() if options["device"] is None else options["device"])


def _settings(options: Mapping[str, Any]) -> Options:
    effort = EFFORTS[options["effort"]]
    return Options(
        trials=options["trials"] or effort.trials,
        budget=options["budget"] or effort.budget, strategy=options["strategy"],
        seed=options["seed"], strict=options["strict"], resume=options["resume"],
        compile_seconds=options["compile_timeout"], run_seconds=options["run_timeout"])


def _tasks(options: Mapping[str, Any], device: DeviceProfile, report: Report) -> list[Task]:
    if options["models"]:
        return unique(task for path in options["models"]
                      for task in _model_tasks(path, options, device))
    ops = list(options["ops"])
    if options["everything"]:
        ops += [op for op in dict.fromkeys(k.op_type for k in registry.all_kernels())
                if not op.startswith("LAB_") and op not in ops]
    shapes = (*options["shapes"],
              *(read_shapes(options["shape_file"]) if options["shape_file"] else ()))
    tasks = []
    for op in ops:
        request = Request(op, shapes, options["dtypes"], options["act"], options["layout"],
                          constant_weights=options["constant_weights"])
        try:
            tasks += tasks_for(request, device)
        except Invalid as error:
            if not options["everything"]:
                raise
            report.message(f"ge2: {op} is left out: {error}")
    return unique(tasks)


def _model_tasks(path: str, options: Mapping[str, Any], device: DeviceProfile) -> list[Task]:
    from ..model import load

    model = load(Path(path), backend="cpu")
    return model_tasks(model, device, symbol_sets(options["symbols"], model.symbols))


def symbol_sets(pairs: Sequence[str], known: Sequence[str]) -> list[dict[str, int]]:
    """Return every combination of the values of --sym name=1,8,32; 1 where none is given.

    Raises:
        Invalid: an unknown name or a value that is no number.
    """
    values: dict[str, list[int]] = {name: [1] for name in known}
    for pair in pairs:
        name, _, text = pair.partition("=")
        numbers = text.split(",")
        if name not in known:
            raise Invalid(f"the model has no named dimension {name!r}", argument="--sym",
                          wanted=", ".join(known) or "none")
        if not all(n.strip().isdecimal() and int(n) > 0 for n in numbers):
            raise Invalid("--sym takes NAME=N[,N...]", found=repr(pair))
        values[name] = [int(n) for n in numbers]
    return [dict(zip(values, combination, strict=True))
            for combination in product(*values.values())]


# -- without measuring ----------------------------------------------------------------------------


def dry_run(tasks: Sequence[Task], device: DeviceProfile, settings: Options, report: Report
            ) -> int:
    """Show each problem's space and estimates."""
    rows: list[tuple[Any, ...]] = []
    data: list[dict[str, Any]] = []
    for task in tasks:
        space = build_space(task.problem, device, strict=settings.strict)
        best = min(space.entries, key=lambda e: e.predicted_us)
        tried = min(len(space.entries), settings.trials)
        rows.append((task.label, len(space.entries), space.total, tried,
                     f"{best.predicted_us:.2f}", space.default.variant.id))
        data.append({"problem": task.label, "legal": len(space.entries), "total": space.total,
                     "tried": tried, "predicted_us": best.predicted_us,
                     "uncertainty": best.uncertainty, "default": space.default.variant.id,
                     "predicted_best": best.variant.id,
                     "candidates": [e.variant.id for e in space.entries]})
    report.table(("problem", "legal", "of", "to try", "predicted us", "default"), rows,
                 right=frozenset({1, 2, 3, 4}))
    total = sum(row["tried"] for row in data)
    report.line(f"{len(tasks)} problems, {total} candidates to try on {device.name}; about "
                f"{human_time(0.35 * total + 1.0 * len(tasks))} and what compiling takes, at most "
                f"{human_time(settings.budget)}")
    report.data = {"device": device.name, "arch": device.arch, "problems": data,
                   "budget_seconds": settings.budget}
    report.finish()
    return 0


def compile_all(tasks: Sequence[Task], device: DeviceProfile, report: Report) -> int:
    """Compile every candidate of every problem into the cache."""
    from ..runtime import jit

    start = time.monotonic()
    sources = {}
    for task in tasks:
        for entry in build_space(task.problem, device).entries:
            try:
                records = launch_table.bind(task.problem, entry.variant, device)
            except Ge2Error as error:
                report.detail(f"{entry.variant.id}: {error}")
                continue
            sources.update(dict.fromkeys((r.kernel for r in records), entry.variant.id))
    found = jit.try_compile(sources, device.arch)
    failed = {s: e for s, e in found.items() if isinstance(e, Exception)}
    for source, reason in failed.items():
        report.line(f"{bad('fail')}  {sources[source]}: {reason}")
    cached = sum(1 for c in found.values() if isinstance(c, jit.Compiled) and c.from_cache)
    report.line(f"{len(found) - len(failed)} of {len(found)} kernels compiled for {device.arch} "
                f"({cached} were cached) in {human_time(time.monotonic() - start)}")
    report.data = {"arch": device.arch, "kernels": len(found), "failed": len(failed),
                   "cached": cached, "problems": len(tasks)}
    report.finish()
    return 1 if failed else 0


# -- measuring ------------------------------------------------------------------------------------


def _search(tasks: Sequence[Task], targets: Sequence[Target], options: Mapping[str, Any],
            report: Report) -> int:
    settings = _settings(options)
    progress = Progress(report, len(tasks), settings.trials)
    session = Session(tasks, settings, _database(report), targets, progress)
    interrupted = False
    start = time.monotonic()
    try:
        session.run()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.close()
    _report(session.results, report, time.monotonic() - start)
    if options["vs"] and not interrupted:
        from .tune_peers import compare_with_torch

        compare_with_torch(session.results, targets[0], report)
    report.data["interrupted"] = interrupted
    report.finish()
    if interrupted:
        report.message("ge2: interrupted; what was measured is kept, the same call goes on")
        return 130
    without = [r for r in session.results if r.reached
               and (r.outcome is None or r.outcome.decision is None)]
    return NO_CANDIDATE if without else 0


def _database(report: Report) -> Path | None:
    from ..evidence.records import Store

    path = default_path()
    try:
        Store(path).close()
    except EvidenceError as error:
        report.message(f"ge2: warning: {error}; results are only shown")
        return None
    return path


def _report(results: Sequence[Result], report: Report, seconds: float) -> None:
    rows = []
    for result in results:
        outcome = result.outcome
        if outcome is None or outcome.decision is None:
            if result.reached:
                error = result.error or (outcome.first_error if outcome else "")
                report.line(f"{bad('none')}  {result.task.label}: no valid candidate"
                            + (f"; {error}" if error else ""))
            continue
        found = outcome.decision
        change = "-" if found.variant == found.default else (
            f"{100 * outcome.gain.value:+.1f} % ± {100 * outcome.gain.noise:.1f}")
        rows.append((result.task.label, f"{found.default_us:.2f}", f"{found.time_us:.2f}", change,
                     f"{100 * outcome.roofline:.0f} %",
                     f"{outcome.tried}/{outcome.valid}/{outcome.wrong}/{outcome.failed}",
                     found.variant))
    report.table(("problem", "default us", "best us", "gain", "roofline",
                  "tried/valid/wrong/failed", "kernel"), rows, right=frozenset({1, 2, 3, 4}))
    counts = sessions.summary(results)
    report.line(f"{good(str(counts['tuned']))} of {counts['problems']} problems tuned in "
                f"{human_time(seconds)}: {counts['tried']} candidates ({counts['known']} known), "
                f"{counts['valid']} valid, {counts['wrong']} wrong, {counts['failed']} failed"
                + (f"; {counts['skipped']} problems not reached within the budget"
                   if counts["skipped"] else ""))
    report.message(f"evidence: {default_path()}")
    report.data = {"seconds": seconds, **counts, "database": str(default_path()),
                   "results": [_as_dict(r) for r in results]}


def _as_dict(result: Result) -> dict[str, Any]:
    outcome = result.outcome
    plain: dict[str, Any] = {"problem": result.task.label, "error": result.error,
                             "nodes": result.task.nodes, "reached": result.reached}
    if outcome is None:
        return plain
    decision = outcome.decision
    return {**plain, "tried": outcome.tried, "valid": outcome.valid, "wrong": outcome.wrong,
            "failed": outcome.failed, "known": outcome.known, "seconds": outcome.seconds,
            "first_error": outcome.first_error, "gain": outcome.gain.value,
            "noise": outcome.gain.noise, "roofline": outcome.roofline,
            "decision": as_plain(decision) if decision else None,
            "failures": [{"variant": r.variant, "state": r.state, "reason": r.reason}
                         for r in outcome.failures]}
