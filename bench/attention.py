"""ATTENTION beside torch: the selected variant and every other, in one process.

    python -m bench.attention --out bench/results/h200 [--only hd128,hd64,...] [--selected]

Each round times all candidates in a new random order. Ratios are peer / ge2 of the same round.
Sustained: samples follow each other, so that large calls run at the power limit. Burst: a pause
before each short sample. Operands come from memory.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ge2.compiler.kernels.metadata import Variant
from ge2.evidence.measure import Candidate, Timing, measure
from ge2.runtime.device import CudaDevice, cuda_device, default_index

from .attention_cases import SECTIONS, AttentionCase, Peer
from .candidates import buffer_sets, problem_bytes, problem_candidate
from .gemm import lower_bound, paired
from .results import write_results
from .side_by_side import compile_all, torch_tensors, usable

REGIMES: Mapping[str, dict[str, Any]] = {
    "sustained": {"rounds": 10, "sample_us": 6000.0, "warm_up_us": 400_000.0},
    "burst": {"rounds": 7, "sample_us": 2000.0, "idle_s": 0.1},
}
IN_BURST = 4  # the best of the sustained ones
SLOW = ("attention_simt", "attention_grad_simt")  # left out where another kernel serves the call
ERROR = 8e-3  # relative L2 difference to a torch kernel of the same types


class Bench:
    """Runs cases on a device.

    Args:
        device: where.
        every: time all variants, not only the selected one.
    """

    def __init__(self, device: CudaDevice, every: bool) -> None:
        self.device, self.every = device, every

    def variants(self, case: AttentionCase) -> list[Variant]:
        """Return the variants to time, the selected one first."""
        found = usable(case.problem, self.device)
        worth = [v for v in found if v.kernel.name not in SLOW] or found
        return worth if self.every else worth[:1]

    def run(self, case: AttentionCase) -> dict[str, Any]:
        """Return times, ratios and errors of a case."""
        sets = buffer_sets(case.problem, self.device)
        nbytes = problem_bytes(case.problem)
        views = [torch_tensors(case.problem, arrays) for arrays in sets]
        peers, refused = _peers(case, views[0])
        candidates = {name: _peer_candidate(views, call, nbytes) for name, call in peers.items()}
        ids, errors = [], {}
        for variant in self.variants(case):
            candidate = problem_candidate(case.problem, self.device, sets, variant)
            errors[variant.id] = _error(next(iter(peers.values())), views[0], candidate,
                                        len(case.problem.inputs))
            candidates[variant.id] = candidate
            ids.append(variant.id)
        figures: dict[str, Any] = {
            "selected": ids[0], "errors": errors, "flops": case.flops, "bytes": nbytes,
            "goal": case.goal, "refused": refused}
        for regime, options in REGIMES.items():
            times = measure(candidates, cold=True, l2_bytes=self.device.profile.l2_bytes, **options)
            figures[regime] = summary(times, ids, list(peers))
            fast = sorted(ids, key=lambda i: times[i].median)[:IN_BURST]
            ids = [ids[0], *(i for i in fast if i != ids[0])]
            candidates = {name: candidates[name] for name in (*peers, *ids)}
        return figures


def _peers(case: AttentionCase, tensors: list[Any]) -> tuple[dict[str, Peer], dict[str, str]]:
    """Return the peers that take the case, and why the others do not."""
    import torch

    found, refused = {}, {}
    for name, make in case.peers.items():
        try:
            call = make()
            call(tensors)
            torch.cuda.synchronize()
            found[name] = call
        except Exception as error:  # each backend refuses in its own way
            refused[name] = f"{type(error).__name__}: {str(error)[:200]}"
    return found, refused


def _peer_candidate(views: Sequence[list[Any]], call: Peer, nbytes: int) -> Candidate:
    import torch

    def prepare(tensors: list[Any]) -> Callable[[int], object]:
        def enqueue(stream: int) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                call(tensors)

        return enqueue

    return Candidate([prepare(tensors) for tensors in views], nbytes)


def _error(peer: Peer, tensors: list[Any], ours: Candidate, output: int) -> float:
    """Return the largest relative L2 difference to torch's results; a NaN left over is bad."""
    import cupy

    made = peer(tensors)
    wanted = [x.float().clone() for x in (made if isinstance(made, tuple) else (made,))]
    found = tensors[output:output + len(wanted)]
    for x in found:
        x.fill_(math.nan)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    ours.launches[0](stream.ptr)
    cupy.cuda.Device().synchronize()
    errors = [float((x.float() - w).norm() / w.norm()) for x, w in zip(found, wanted, strict=True)]
    return max(errors, key=lambda error: math.inf if math.isnan(error) else error)


def summary(times: Mapping[str, Timing], ids: Sequence[str], peers: Sequence[str]
            ) -> dict[str, Any]:
    """Return microseconds, and ratios of each peer to the selected and the best variant."""
    median = {name: timing.median for name, timing in times.items()}
    best = min(ids, key=lambda name: median[name])
    rival = min(peers, key=lambda name: median[name])
    found: dict[str, Any] = {
        "us": median, "spread": {name: t.spread for name, t in times.items()}, "best": best,
        "peer": rival, "loss": median[ids[0]] / median[best] - 1.0}
    for label, name in (("selected", ids[0]), ("best", best)):
        ratios = {peer: paired(times[peer], times[name]) for peer in peers}
        found[f"{label}_ratios"] = {p: statistics.median(r) for p, r in ratios.items()}
        found[f"{label}_ratio"] = found[f"{label}_ratios"][rival]
        found[f"{label}_lower"] = lower_bound(ratios[rival])
    return found


def show(case: AttentionCase, figures: Mapping[str, Any]) -> None:
    """Print a line for each regime."""
    for regime in REGIMES:
        row = figures[regime]
        us = row["us"][figures["selected"]]
        mark = "ok " if row["selected_ratio"] >= case.goal or regime == "burst" else "LOW"
        click.echo(
            f"{mark} {case.name:36} {regime[0]} {us:9.2f} us {case.flops / us / 1e6:6.1f} TFLOP/s "
            f"{figures['bytes'] / us / 1e6:5.2f} TB/s "
            f"{row['selected_ratio']:.3f} (>{row['selected_lower']:.3f}) x {row['peer']:9} "
            f"best {row['best_ratio']:.3f} loss {100 * row['loss']:4.1f} %  "
            f"{short(figures['selected'])} | {short(row['best'])}")
    name, worst = max(figures["errors"].items(), key=lambda item: item[1])
    if not worst < ERROR:
        click.echo(f"  ERROR {worst:.1e} {name}")
    for peer, reason in figures["refused"].items():
        click.echo(f"  {peer} takes it not: {reason[:100]}")


def short(variant_id: str) -> str:
    """Return a variant's id without what is clear anyway."""
    for long, brief in (("attention/attention_", ""), ("OVERLAP=", ""), (",BN=", "x"),
                        ("BM=", ""), ("TURNS=", "turns ")):
        variant_id = variant_id.replace(long, brief)
    return variant_id


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="result folder")
@click.option("--only", default="", help=f"comma list of {', '.join(SECTIONS)}")
@click.option("--match", default="", help="comma list of parts of case names")
@click.option("--selected", is_flag=True, help="time only the selected variant")
def main(out: Path, only: str, match: str, selected: bool) -> None:
    """See the module."""
    import cupy

    bench = Bench(cuda_device(default_index()), not selected)
    groups = {name: [c for c in SECTIONS[name]() if any(m in c.name for m in match.split(","))]
              for name in (only.split(",") if only else SECTIONS)}
    click.echo(compile_all([(c.problem, v) for cases in groups.values() for c in cases
                            for v in bench.variants(c)], bench.device))
    figures: dict[str, dict[str, Any]] = {}
    for name, cases in groups.items():
        figures[name] = {}
        for case in cases:
            try:
                figures[name][case.name] = bench.run(case)
                show(case, figures[name][case.name])
            except Exception as error:  # one broken kernel must not hide the others
                click.echo(f"FAIL {case.name}: {type(error).__name__}: {str(error)[:300]}")
                figures[name][case.name] = {"failed": str(error)}
            cupy.get_default_memory_pool().free_all_blocks()
        write_results(out / "attention.json", figures)  # again after each, should time run out


if __name__ == "__main__":
    main()
