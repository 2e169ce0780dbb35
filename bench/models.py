"""The MiniLM-L6 encoder at 128 tokens beside torch eager and torch.compile, in one process.

    python -m bench.models --out bench/results/h200 --only f16 --batches 32
    python -m bench.models --out FOLDER --only f32,profile-f16,start --without max-autotune
    python -m bench.models --only f16,f32 --check-only      # needs no GPU

Captured: ge2's and torch's launches are captured into CUDA graphs by the same code. Called: from
Python, one call after the other, as users do; there max-autotune replays graphs of its own. All
take turns in random order; ratios are peer / ge2 of the same round. What differs from the float64
forward by more than the limit has no figure. Without --weights the weights are random.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ge2.evidence.measure import Candidate, Timing, measure

from .gemm import lower_bound, paired
from .minilm import build, sentences, write_random
from .model_case import FORMS, LENGTH, MODES, REGIMES, SECTIONS, Case
from .model_start import starts
from .results import write_results

PROFILES = tuple(f"profile-{form}" for form in FORMS)
GOALS = {"f16": 1.3, "f32": 1.05, "x3": 1.8}  # times the best torch.compile
LIMITS = {"f16": 2e-3, "f32": 1e-5, "x3": 1e-5}  # largest difference from the float64 forward
ROUNDS = 12
SAMPLE_US = 6000.0
WARM_UP_US = 300_000.0


def run_case(case: Case, regimes: Sequence[str]) -> dict[str, Any]:
    """Return errors, times, ratios and memory of a case."""
    errors = case.check()
    figures: dict[str, Any] = {
        "errors": errors, "limit": {name: LIMITS[name] for name in case.models},
        "refused": case.refused, "compile_s": case.compile_s, "plan": plans(case),
        "torch_arena": torch_arena(case)}
    for regime in regimes:
        sound = sound_candidates(case.candidates(regime), errors, regime, LIMITS[case.section])
        times = measure(sound, cold=False, rounds=ROUNDS, sample_us=SAMPLE_US,
                        warm_up_us=WARM_UP_US)
        figures[regime] = summary(times)
    for name, error in case.check().items():  # again, now that everything ran many times
        errors[name] = error if math.isnan(error) else max(error, errors[name])
    return figures


def sound_candidates(candidates: Mapping[str, Candidate], errors: Mapping[str, float],
                     regime: str, limit: float) -> dict[str, Candidate]:
    """Return the candidates whose error is within the limit; NaN is not."""
    def error(name: str) -> float:
        return errors[name[4:] if name.startswith("ge2 ") else f"{name} {regime}"]

    return {name: c for name, c in candidates.items() if error(name) <= limit}


def summary(times: Mapping[str, Timing]) -> dict[str, Any]:
    """Return microseconds, and each peer over each of ge2's models."""
    found: dict[str, Any] = {"us": {name: t.median for name, t in times.items()},
                             "spread": {name: t.spread for name, t in times.items()}}
    compiled = [name for name in MODES if name in times]
    rival = min(compiled, key=lambda name: times[name].median, default=None)
    found["peer"] = rival
    for name in times:
        if not name.startswith("ge2 "):
            continue
        ratios = {peer: paired(times[peer], times[name])
                  for peer in times if not peer.startswith("ge2 ")}
        found[name] = {"ratios": {peer: statistics.median(r) for peer, r in ratios.items()}}
        if rival is not None:
            found[name] |= {"ratio": found[name]["ratios"][rival],
                            "lower": lower_bound(ratios[rival])}
    return found


def plans(case: Case) -> dict[str, dict[str, int]]:
    """Return launches, and bytes of weights and of the arena, of each of ge2's models."""
    found = {}
    for form, model in case.models.items():
        plan = model.executable.plan(dict.fromkeys(("ids", "mask"), (case.batch, LENGTH)))
        found[form] = {
            "launches": len(plan.records), "arena": plan.arena_bytes, "live": plan.live_bound,
            "weights": sum(a.nbytes for a in model.optimized.graph.constants.values())}
    return found


def torch_arena(case: Case) -> int:
    """Return the bytes that torch eager takes at most in a call, weights and inputs apart."""
    import torch

    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    case.module(*case.full)
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def show(label: str, figures: Mapping[str, Any]) -> None:
    """Print a line for each of ge2's models and regimes, then what had no figure."""
    for regime in (r for r in REGIMES if r in figures):
        row = figures[regime]
        others = "  ".join(f"{n} {us:.1f}" for n, us in row["us"].items() if "ge2" not in n)
        for form, limit in figures["limit"].items():
            name = f"ge2 {form}"
            error = figures["errors"][form]
            if name not in row or not error <= limit:
                click.echo(f"FAIL {label} {form} {regime}: error {error:.1e}, limit {limit:.0e}")
                continue
            ratio, lower = row[name].get("ratio", math.nan), row[name].get("lower", math.nan)
            mark = "ok " if ratio >= GOALS[form] else "LOW"
            click.echo(f"{mark} {label:9} {form:4} {regime:8} {row['us'][name]:9.1f} us "
                       f"±{100 * row['spread'][name]:4.1f} %  {ratio:.2f} (>{lower:.2f}) x "
                       f"{row['peer']}, goal {GOALS[form]:g}  ({others})  "
                       f"{figures['plan'][form]['launches']} launches  err {error:.1e}")
    for name, reason in figures["refused"].items():
        click.echo(f"  no {name}: {reason[:120]}")


def profile(folder: Path, form: str, batch: int) -> list[dict[str, Any]]:
    """Print and return the time of each node, as `ge2 run --profile` does."""
    import cupy

    from ge2.commands.node_profile import profile_model, report_profile
    from ge2.commands.output import Report

    config = json.loads((folder / "config.json").read_text())
    ids, mask = map(cupy.asarray, sentences(config, batch, LENGTH, ragged=False))
    report = Report()
    click.echo(f"profile of {form} B{batch}: each node alone, operands in the cache")
    report_profile(profile_model(build(folder, *FORMS[form]).model(backend="cuda"),
                                 {"ids": ids, "mask": mask}), report)
    rows: list[dict[str, Any]] = report.data["profile"]
    return rows


def check_only(folder: Path, sections: Sequence[str], batches: Sequence[int]) -> bool:
    """Compare both forms with the float64 forward on the CPU; return whether all are near."""
    good = True
    for section in sections:
        for batch in batches or (1,):
            case = Case(folder, section, batch, device="cpu")
            case.add_peers(tuple(MODES), ("called",), math.inf)
            for name, error in case.check().items():
                limit = LIMITS.get(name, LIMITS[section])
                good &= error <= limit
                click.echo(f"{'ok  ' if error <= limit else 'FAIL'} {section} B{batch} {name}: "
                           f"error {error:.1e}, limit {limit:.0e}")
    return good


class Commas(click.ParamType):
    """A comma list.

    Args:
        known: the values; empty: positive integers.
    """

    name = "list"

    def __init__(self, known: Sequence[str] = ()) -> None:
        self.known = known

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[Any, ...]:
        """Return the parts."""
        if not isinstance(value, str):
            return tuple(value)
        parts = tuple(part for part in value.split(",") if part)
        for part in parts:
            if part not in self.known if self.known else not part.isdecimal():
                self.fail(f"{part!r}; known: {', '.join(self.known) or 'numbers'}", param, ctx)
        return parts if self.known else tuple(map(int, parts))


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), help="result folder")
@click.option("--only", type=Commas((*SECTIONS, *PROFILES, "start")),
              default=(*SECTIONS, "profile-f16", "start"), help="sections")
@click.option("--batches", type=Commas(), default=(), help="of f16, f32 and the profiles")
@click.option("--without", type=Commas(tuple(MODES)), default=(), help="peers to leave out")
@click.option("--regimes", type=Commas(REGIMES), default=REGIMES, help="captured, called")
@click.option("--weights", type=click.Path(path_type=Path, exists=True),
              help="folder with config.json and model.safetensors")
@click.option("--limit", type=float, default=150.0, help="seconds for each torch.compile")
@click.option("--unmasked", is_flag=True, help="torch is not told of padding (less work)")
@click.option("--check-only", "checking", is_flag=True, help="compare on the CPU, time nothing")
def main(out: Path | None, only: tuple[str, ...], batches: tuple[int, ...],
         without: tuple[str, ...], regimes: tuple[str, ...], weights: Path | None, limit: float,
         unmasked: bool, checking: bool) -> None:
    """See the module."""
    if out is None and not checking:
        raise click.UsageError("--out is missing")
    with tempfile.TemporaryDirectory() as scratch:
        folder = weights or write_random(Path(scratch) / "weights")
        if set(only) & set(SECTIONS):
            import torch

            torch.set_grad_enabled(False)
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        if checking or out is None:
            raise SystemExit(not check_only(folder, [s for s in only if s in SECTIONS], batches))
        options = {"weights": str(weights or "random"), "length": LENGTH, "unmasked": unmasked}
        for section in only:
            suffix = "".join(f"_b{batch}" for batch in batches) + "_unmasked" * unmasked
            path = out / f"models_{section}{suffix}.json"
            for figures in run_section(section, folder, batches, without, regimes, limit,
                                       not unmasked):
                write_results(path, {**options, **figures})  # again after each, should time run out


def run_section(section: str, folder: Path, batches: Sequence[int], without: Sequence[str],
                regimes: Sequence[str], limit: float, masked: bool) -> Iterator[dict[str, Any]]:
    """Yield the figures of a section, more after each case."""
    figures: dict[str, Any] = {}
    if section == "start":
        yield starts(folder, batches[0] if batches else 32, LENGTH, without)
        return
    if section in PROFILES:
        for batch in batches or (32,):
            figures[f"B{batch}"] = profile(folder, section.removeprefix("profile-"), batch)
            yield figures
        return
    for batch in batches or SECTIONS[section][1]:
        label = f"B{batch}"
        try:
            case = Case(folder, section, batch, masked=masked)
            case.add_peers(without, regimes, limit)
            figures[label] = run_case(case, regimes)
            show(label, figures[label])
        except Exception as error:  # one case must not hide the others
            click.echo(f"FAIL {section} {label}: {type(error).__name__}: {str(error)[:300]}")
            figures[label] = {"failed": str(error)}
        yield figures


if __name__ == "__main__":
    main()
