"""The MiniLM-L6 encoder at 128 tokens beside torch eager and torch.compile, in one process.

    python -m bench.models --out bench/results/h200 --only f16 --batches 32 --compile
    python -m bench.models --out FOLDER --only f32,profile-f16,start
    python -m bench.models --only f16,f32 --check-only      # needs no GPU

torch.compile, which the targets are of, takes 5 to 70 s each and is left out without --compile.
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

from .minilm import build, sentences, write_random
from .model_case import FORMS, LENGTH, MODES, REGIMES, SECTIONS, Case
from .model_start import start_verdicts, starts
from .targets import WIDTH, Found, Section, Verdict, interval, judged, paired

PROFILES = tuple(f"profile-{form}" for form in FORMS)
GOALS = {"f16": 1.3, "f32": 1.05, "x3": 1.8}  # times the best torch.compile
LIMITS = {"f16": 2e-3, "f32": 1e-5, "x3": 1e-5}  # largest difference from the float64 forward
ARENA = 1.05  # of the bytes that live at once: what the plan takes at most
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
            found[name] |= {"ratio": found[name]["ratios"][rival], "rounds": ratios[rival],
                            "lower": interval(ratios[rival])[0]}
    return found


def verdicts(label: str, figures: Mapping[str, Any]) -> Iterator[Verdict]:
    """Yield what the targets say of a case: times with a compiled peer; bytes by the plan."""
    for form, limit in figures["limit"].items():
        rows = [(regime, figures[regime].get(f"ge2 {form}", {})) for regime in REGIMES
                if regime in figures]
        for regime, row in rows:
            if "rounds" in row and figures["errors"][form] <= limit:
                yield judged(f"MiniLM {form}, best torch.compile", f"{label} {form} {regime}",
                             GOALS[form], row["rounds"], note=f"x {figures[regime]['peer']}")
        plan = figures["plan"][form]
        ratio = plan["arena"] / max(plan["live"], 1)
        yield Verdict("arena, bytes that live at once", f"{label} {form}", ARENA, ratio,
                      ratio <= ARENA, at_most=True, note=f"{plan['arena']} bytes")


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
            mark = "   " if math.isnan(ratio) else "ok " if ratio >= GOALS[form] else "LOW"
            launches = figures["plan"][form]["launches"]
            click.echo(f"{mark} {label} {form} {regime} {row['us'][name]:.1f} us {ratio:.2f} "
                       f"(>{lower:.2f}) x {row['peer']}, goal {GOALS[form]:g} ({others}) "
                       f"{launches} launches err {error:.1e}"[:WIDTH])
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
@click.option("--compile", "compiled", is_flag=True, help="time torch.compile as well")
@click.option("--regimes", type=Commas(REGIMES), default=REGIMES, help="captured, called")
@click.option("--weights", type=click.Path(path_type=Path, exists=True),
              help="folder with config.json and model.safetensors")
@click.option("--limit", type=float, default=150.0, help="seconds for each torch.compile")
@click.option("--unmasked", is_flag=True, help="torch is not told of padding (less work)")
@click.option("--check-only", "checking", is_flag=True, help="compare on the CPU, time nothing")
def main(out: Path | None, only: tuple[str, ...], batches: tuple[int, ...],
         without: tuple[str, ...], compiled: bool, regimes: tuple[str, ...],
         weights: Path | None, limit: float, unmasked: bool, checking: bool) -> None:
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
        for name in only:
            suffix = "".join(f"_b{batch}" for batch in batches) + "_unmasked" * unmasked
            section = Section(out / f"models_{name}{suffix}.json", options)
            run_section(name, section, folder, batches, without if compiled else tuple(MODES),
                        regimes, limit, not unmasked)
            section.summary()


def run_section(name: str, section: Section, folder: Path, batches: Sequence[int],
                without: Sequence[str], regimes: Sequence[str], limit: float, masked: bool) -> None:
    """Measure the cases of a section."""
    if name == "start":
        rows = starts(folder, batches[0] if batches else 32, LENGTH, without)
        section.add("starts", rows, start_verdicts(rows))
        return
    for batch in batches or SECTIONS.get(name, ((), (32,)))[1]:
        label = f"B{batch}"
        if name in PROFILES:
            section.add(label, {"nodes": profile(folder, name.removeprefix("profile-"), batch)})
            continue

        def measured(label: str = label, batch: int = batch) -> Found:
            case = Case(folder, name, batch, masked=masked)
            case.add_peers(without, regimes, limit)
            figures = run_case(case, regimes)
            show(label, figures)
            return figures, list(verdicts(label, figures))

        section.run(label, measured)


if __name__ == "__main__":
    main()
