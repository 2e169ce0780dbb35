"""GEMM_BIAS_ACT beside torch: the selected variant and every other, in one process.

    python -m bench.gemm --out bench/results/h200 [--only bf16_relu,large,...]

Each round times all candidates in a new random order. Ratios are peer / ge2 of the same round; the
lower bound is that of a 95 % interval over rounds. Sustained: samples follow each other, so large
products run at the power limit. Burst: a pause before each short sample. Operands come from memory.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ge2.compiler.kernels.metadata import Variant
from ge2.evidence.measure import Candidate, Timing, measure
from ge2.runtime.device import CudaDevice, cuda_device, default_index

from . import gemm_accuracy, gemm_quantised
from .candidates import buffer_sets, problem_bytes, problem_candidate
from .gemm_cases import LARGE, UNSEEN, GemmCase, Peer, anchors, compiled_peer, gemm_case
from .results import write_results
from .side_by_side import compile_all, torch_tensors, usable

ROUNDS = 12
SUSTAINED: dict[str, Any] = {"sample_us": 6000.0, "warm_up_us": 400_000.0}
BURST: dict[str, Any] = {"sample_us": 2000.0, "idle_s": 0.08, "rounds": 7}
SLOW = ("gemm_bias_act_f32", "matmul_nbits")  # take anything
BURST_VARIANTS = 5  # the best of the sustained ones

Tensors = list[Any]


def large() -> Iterator[GemmCase]:
    """Square products against plain cuBLAS, with and without epilogues."""
    for shape in LARGE:
        for act in ("none", "gelu_tanh", "gelu"):
            yield gemm_case(shape, "bf16", act, bias=act != "none")


def layouts() -> Iterator[GemmCase]:
    """All transpose combinations."""
    for dtype in ("bf16", "f16"):
        for trans_a in (False, True):
            for trans_b in (False, True):
                yield gemm_case((4096, 4096, 4096), dtype, "relu", trans_a=trans_a,
                                trans_b=trans_b)


def few_rows() -> Iterator[GemmCase]:
    """A few hundred rows against square weights."""
    for m in (128, 256, 512):
        for act in ("none", "gelu_tanh"):
            yield gemm_case((m, 4096, 4096), "bf16", act, bias=act != "none")


def f32_modes() -> Iterator[GemmCase]:
    """f32 on tensor cores against cuBLAS f32 or tf32."""
    for n in (2048, 4096, 8192):
        for mode in ("x3", "tf32"):
            yield gemm_case((n, n, n), "f32", "none", bias=False, f32=mode)
    for trans_a, trans_b in ((False, False), (True, True)):
        yield gemm_case((4096,) * 3, "f32", "none", trans_a=trans_a, trans_b=trans_b, bias=False,
                        f32="tf32")


SECTIONS: Mapping[str, Callable[[], Iterator[GemmCase]]] = {
    "bf16_relu": lambda: anchors("bf16", "relu"),
    "bf16_gelu": lambda: anchors("bf16", "gelu_tanh"),
    "f16_relu": lambda: anchors("f16", "relu"),
    "f16_gelu": lambda: anchors("f16", "gelu_tanh"),
    "large": large,
    "layouts": layouts,
    "few_rows": few_rows,
    "f32": f32_modes,
    "int8": gemm_quantised.int8,
    "fp8": gemm_quantised.fp8,
    "nbits": gemm_quantised.nbits,
    "choice": lambda: (gemm_case(shape, "bf16", "relu") for shape in UNSEEN),
}
IN_BURSTS = ("large",)


def lower_bound(ratios: Sequence[float]) -> float:
    """Return the lower end of a 95 % interval of the mean of ratios (normal in their logarithm)."""
    logs = [math.log(r) for r in ratios]
    if len(logs) < 2:
        return math.exp(logs[0])
    return math.exp(statistics.mean(logs) - 2.2 * statistics.stdev(logs) / len(logs) ** 0.5)


def paired(peer: Timing, ours: Timing) -> list[float]:
    """Return the ratio of each round."""
    return [a / b for a, b in zip(peer.samples, ours.samples, strict=True)]


class Bench:
    """Runs cases on a device.

    Args:
        device: where.
        every: time all variants, not only the selected one.
        compiled: time torch.compile as well.
    """

    def __init__(self, device: CudaDevice, every: bool, compiled: bool) -> None:
        self.device, self.every, self.compiled = device, every, compiled

    def variants(self, case: GemmCase) -> list[Variant]:
        """Return the variants to time, the selected one first; not the slow ones for any dtype."""
        found = usable(case.problem, self.device)
        big = case.flops > 2e9
        worth = [v for v in found if not (big and v.kernel.name in SLOW)]
        return (worth or found) if self.every else found[:1]

    def run(self, case: GemmCase, bursts: bool) -> dict[str, Any]:
        """Return times, ratios and errors of a case."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = case.problem.attr_map.get("f32") == "tf32"
        sets = buffer_sets(case.problem, self.device)
        nbytes = problem_bytes(case.problem)
        views = [torch_tensors(case.problem, arrays) for arrays in sets]
        peers = dict(case.peers)
        if self.compiled:
            peers["compile"] = compiled_peer(case)
        candidates = {name: _peer_candidate(views, call, nbytes) for name, call in peers.items()}
        ids, errors = [], {}
        for variant in self.variants(case):
            candidate = problem_candidate(case.problem, self.device, sets, variant)
            errors[variant.id] = _error(case, views[0], candidate)
            candidates[variant.id] = candidate
            ids.append(variant.id)
        options: dict[str, Any] = {"cold": True, "l2_bytes": self.device.profile.l2_bytes}
        times = measure(candidates, rounds=ROUNDS, **SUSTAINED, **options)
        figures = {"selected": ids[0], "errors": errors, "flops": case.flops,
                   "sustained": summary(case, times, ids)}
        if bursts:
            best = sorted(ids, key=lambda i: times[i].median)[:BURST_VARIANTS]
            few = {name: candidates[name] for name in {*peers, ids[0], *best}}
            figures["burst"] = summary(case, measure(few, **BURST, **options),
                                       [i for i in ids if i in few])
        return figures


def _peer_candidate(views: Sequence[Tensors], call: Peer, nbytes: int) -> Candidate:
    import torch

    def prepare(tensors: Tensors) -> Callable[[int], object]:
        def enqueue(stream: int) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                call(tensors)

        return enqueue

    return Candidate([prepare(tensors) for tensors in views], nbytes)


def _error(case: GemmCase, tensors: Tensors, ours: Candidate) -> float:
    """Return the relative L2 difference to a torch call; a NaN left over is bad."""
    import cupy

    wanted = case.peers[case.rivals[0]](tensors)
    wanted = wanted.float().clone()  # type: ignore[attr-defined]
    tensors[-1].fill_(math.nan if tensors[-1].is_floating_point() else -1)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    ours.launches[0](stream.ptr)
    cupy.cuda.Device().synchronize()
    return float((tensors[-1].float() - wanted).norm() / wanted.norm())


def summary(case: GemmCase, times: Mapping[str, Timing], ids: Sequence[str]) -> dict[str, Any]:
    """Return microseconds, and ratios of the selected and the best variant to the best peer."""
    median = {name: timing.median for name, timing in times.items()}
    rivals = [name for name in (*case.rivals, "compile") if name in median]
    peer, best = min(rivals, key=lambda n: median[n]), min(ids, key=lambda n: median[n])
    found: dict[str, Any] = {"us": median, "best": best, "peer": peer,
                             "loss": median[ids[0]] / median[best] - 1.0,
                             "spread": {name: t.spread for name, t in times.items()}}
    for label, name in (("selected", ids[0]), ("best", best)):
        ratios = paired(times[peer], times[name])
        found[f"{label}_ratio"] = statistics.median(ratios)
        found[f"{label}_lower"] = lower_bound(ratios)
        found[f"{label}_to_plain"] = (median[case.plain] / median[name]
                                      if case.plain in median else math.nan)
    return found


def short(variant_id: str) -> str:
    """Return a variant's id without what is clear anyway."""
    for long, brief in (("gemm/gemm_bias_act_", ""), ("SCHEDULE=", ""), ("cooperative", "coop"),
                        ("STORES=", "s"), ("STAGES=", "st"), ("PROMOTE=", "p"), ("MODE=", ""),
                        (",BN=", "x"), ("BM=", ""), (",PDL=0", ""), (",PDL=1", ",pdl")):
        variant_id = variant_id.replace(long, brief)
    return variant_id


def show(case: GemmCase, figures: Mapping[str, Any]) -> None:
    """Print a line for each regime."""
    for regime in ("sustained", "burst"):
        if regime not in figures:
            continue
        row = figures[regime]
        us = row["us"][figures["selected"]]
        click.echo(
            f"{case.name:38} {regime[0]} {us:9.2f} us {case.flops / us / 1e6:6.1f} TF "
            f"{row['selected_ratio']:.3f} (>{row['selected_lower']:.3f}) x {row['peer'][:10]:10} "
            f"{row['selected_to_plain']:.3f} x mm  best {row['best_ratio']:.3f} "
            f"{row['best_to_plain']:.3f} loss {100 * row['loss']:4.1f} %  "
            f"{short(figures['selected'])} | {short(row['best'])}")
    worst = max(figures["errors"].items(), key=lambda item: item[1])
    if not worst[1] < 8e-3:
        click.echo(f"  ERROR {worst[1]:.1e} {worst[0]}")


def conclude(name: str, figures: Mapping[str, Any]) -> None:
    """Print the geometric mean of a section and the losses of the choice."""
    rows = [f["sustained"] for f in figures.values() if "sustained" in f]
    if not rows:
        return
    mean = {key: math.exp(statistics.mean(math.log(row[key]) for row in rows))
            for key in ("selected_ratio", "best_ratio")}
    losses = sorted(row["loss"] for row in rows)
    low = min(row["selected_lower"] for row in rows)
    click.echo(
        f"== {name}: geomean {mean['selected_ratio']:.3f} selected, {mean['best_ratio']:.3f} best; "
        f"least lower bound {low:.3f}; loss median {100 * statistics.median(losses):.1f} %, "
        f"90 % {100 * losses[int(0.9 * (len(losses) - 1))]:.1f} %")


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="result folder")
@click.option("--only", default="", help=f"comma list of {', '.join(SECTIONS)}, accuracy")
@click.option("--match", default="", help="comma list of parts of case names")
@click.option("--selected", is_flag=True, help="time only the selected variant")
@click.option("--compile", "compiled", is_flag=True, help="time torch.compile as well")
def main(out: Path, only: str, match: str, selected: bool, compiled: bool) -> None:
    """See the module."""
    import cupy

    bench = Bench(cuda_device(default_index()), not selected, compiled)
    names = only.split(",") if only else [*SECTIONS, "accuracy"]
    groups = {name: [c for c in SECTIONS[name]() if any(m in c.name for m in match.split(","))]
              for name in names if name != "accuracy"}
    click.echo(compile_all([(c.problem, v) for cases in groups.values() for c in cases
                            for v in bench.variants(c)], bench.device))
    for name, cases in groups.items():
        figures: dict[str, Any] = {}
        for case in cases:
            try:
                figures[case.name] = bench.run(case, name in IN_BURSTS)
                show(case, figures[case.name])
            except Exception as error:  # one broken kernel must not hide the others
                click.echo(f"FAIL {case.name}: {type(error).__name__}: {str(error)[:300]}")
            cupy.get_default_memory_pool().free_all_blocks()
        conclude(name, figures)
        suffix = "_compile" if compiled else "_selected" if selected else ""
        write_results(out / f"gemm_{name}{suffix}.json", figures)
    if "accuracy" in names:
        write_results(out / "gemm_accuracy.json", gemm_accuracy.run(bench.device))


if __name__ == "__main__":
    main()
