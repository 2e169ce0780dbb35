"""Row operators and reductions beside torch and a plain copy, in one process.

    python -m bench.rows --out bench/results/h200 [--only NAMES] [--variants] [--compile]

`choice` times every variant on lengths that no rule was made for, `compile` times NVRTC on what the
other sections select.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import ge2.launch_table as table

from . import row_cases as cases
from .candidates import buffer_sets, problem_candidate
from .compile_times import generated
from .side_by_side import Bench, Case, Part, command, compile_all, usable
from .targets import Found, Section, Verdict, geomean, judged, losses

RUNS = 5  # of a sum, for the same bits


def _better(section: Section) -> Iterator[Verdict]:
    text = f"{cases.BETTER}: no lower bound"
    yield from geomean(f"{cases.BETTER}: geometric mean", 1.6, section.of(text))


def choice(section: Section) -> Iterator[Verdict]:
    """Yield what choices without tuning lose."""
    yield from losses("choice without tuning, best variant",
                      [row["loss"] for row in section.figures.values() if "loss" in row])


def totals(bench: Bench, section: Section) -> None:
    """Sums of everything: speed, launches, and whether every run gives the same bits."""
    found = list(cases.total_cases())
    compile_all((pair for case in found for pair in bench.work(case)), bench.device)
    for case in found:
        section.run(case.name, lambda case=case: _total(bench, case))


def _total(bench: Bench, case: Case) -> Found:
    figures, _ = bench.run(case)
    samples = figures["memory"]["samples"]
    variant = usable(case.problem, bench.device)[0]
    launches = len(table.bind(case.problem, variant, bench.device.profile))
    bits = _bits(bench, case)
    figures |= {"launches": launches, "different_results": bits}
    verdicts = [Verdict("sums of everything: one launch", case.name, 1, launches, launches == 1,
                        at_most=True, unit="launches"),
                Verdict("sums of everything: the same bits", case.name, 1, bits, bits == 1,
                        at_most=True, unit="results")]
    if case.name.endswith("2^30"):
        verdicts.insert(0, judged("sum of 2^30 f32", case.name, 4.5, [
            figures["bytes"] / us / 1e6 for us in samples], unit="TB/s"))
    if case.name.endswith("2^20"):
        verdicts.insert(0, judged("sum of 2^20 f32", case.name, 4.5, samples, at_most=True,
                                  unit="us"))
    return figures, verdicts


def _bits(bench: Bench, case: Case) -> int:
    """Return how many different results several runs give."""
    import cupy

    sets = buffer_sets(case.problem, bench.device, bench.pool)[:1]
    launch = problem_candidate(case.problem, bench.device, sets).launches[0]
    stream, results = cupy.cuda.Stream(non_blocking=True), set()
    for _ in range(RUNS):
        sets[0][-1].view("u1").fill(0xFF)
        cupy.cuda.Device().synchronize()
        launch(stream.ptr)
        cupy.cuda.Device().synchronize()
        results.add(sets[0][-1].tobytes())
    return len(results)


SECTIONS: Mapping[str, Part] = {
    "main": Part(cases.main_cases, _better),
    "cached": Part(cases.cached_cases),
    "odd": Part(cases.odd_cases),
    "fused": Part(cases.fused_cases),
    "reductions": Part(cases.reduction_cases),
    "user": Part(cases.user_cases),
    "choice": Part(cases.unseen_cases, choice),
}
OTHERS: Mapping[str, Callable[[Bench, Section], None]] = {
    "totals": totals,
    "compile": lambda bench, section: generated(
        (case for name, part in SECTIONS.items() if name != "choice" for case in part.cases()),
        bench, section),
}

if __name__ == "__main__":
    command("rows", SECTIONS, __doc__, OTHERS)()
