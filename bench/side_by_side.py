"""Kernels beside torch and a plain copy, in one process: what the benches of single problems share.

A case is one problem. The selected variant, with `--variants` every variant, torch's ways to do the
same, a copy of as many bytes and whatever else its goals name are timed interleaved, in a new
random order each round. Sustained: samples follow each other, so that large products run at the
power limit. Burst: a pause before each short sample. Operands come from memory, or where a case is
hot, from the L2 cache.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

import ge2.launch_table as table
from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.metadata import Variant
from ge2.errors import Ge2Error
from ge2.evidence.measure import Candidate, Timing, measure, rotations
from ge2.problem import Problem
from ge2.runtime import jit
from ge2.runtime.device import CudaDevice, cuda_device, default_index

from .candidates import buffer_sets, problem_bytes, problem_candidate
from .targets import WIDTH, Found, Goal, Section, Verdict, judge, wrong

MOST_KEPT = 24 << 30  # bytes of operands kept from case to case
IN_BURST = 3  # variants: the best of the sustained ones
REGIMES: Mapping[str, Mapping[str, Any]] = {
    "memory": {"rounds": 11},
    "quick": {"rounds": 7, "sample_us": 1500.0, "warm_up_us": 50_000.0},
    "sustained": {"rounds": 12, "sample_us": 6000.0, "warm_up_us": 400_000.0},
    "burst": {"rounds": 9, "sample_us": 2000.0, "idle_s": 0.05},
}
SLOW = ("attention_simt", "attention_grad_simt", "gemm_bias_act_f32", "matmul_nbits")
"""Kernels that take anything; not timed where others serve a large problem."""

Tensors = list[Any]
Peer = Callable[[Tensors], Any]
"""Takes torch tensors of inputs and outputs; returns what it makes, in the outputs' order."""


@dataclass(frozen=True, slots=True)
class Case:
    """One operator on one shape.

    Attributes:
        name: for the table.
        problem: what ge2 solves.
        peers: name -> what torch does instead, all doing the same work; the first is the check.
        others: name -> torch calls that are timed, but no rivals.
        compiled: name -> makes what torch.compile does instead; taken with --compile only.
        beside: name -> another problem, timed on its selected variant.
        goals: what is wanted.
        flops: of products.
        regimes: of REGIMES, in order.
        hot: operands stay in the L2 cache.
        every: time all variants in any case: the loss of the choice is wanted.
        constant: slots of inputs that stand for a model's weights.
        error: largest relative L2 difference to the first peer.
    """

    name: str
    problem: Problem
    peers: Mapping[str, Peer] = field(default_factory=dict)
    others: Mapping[str, Peer] = field(default_factory=dict)
    compiled: Mapping[str, Callable[[], Peer]] = field(default_factory=dict)
    beside: Mapping[str, Problem] = field(default_factory=dict)
    goals: tuple[Goal, ...] = ()
    flops: float = 0.0
    regimes: tuple[str, ...] = ("memory",)
    hot: bool = False
    every: bool = False
    constant: tuple[int, ...] = ()
    error: float = 8e-3


Cases = Callable[[], Iterable[Case]]
Conclude = Callable[[Section], Iterable[Verdict]]


@dataclass(frozen=True, slots=True)
class Part:
    """A section of a bench: cases, and what is concluded from all of them together."""

    cases: Cases
    conclude: Conclude = lambda section: ()


def usable(problem: Problem, device: CudaDevice) -> list[Variant]:
    """Return the variants that can solve a problem, best score first."""
    reports = selector.rank(problem, device.profile)
    return [registry.variant(r.variant_id) for r in reports if r.score is not None]


def compile_all(work: Iterable[tuple[Problem, Variant]], device: CudaDevice) -> str:
    """Compile every kernel of the work in parallel; return a line about the times."""
    sources = {record.kernel for problem, variant in work
               for record in table.bind(problem, variant, device.profile)}
    done = jit.try_compile(sources, device.profile.arch)
    failed = [error for error in done.values() if isinstance(error, Ge2Error)]
    for error in failed[:3]:
        click.echo(f"FAIL {str(error)[:600]}")
    made = [c for c in done.values() if isinstance(c, jit.Compiled)]
    fresh = [c.meta.compile_ms for c in made if not c.from_cache]
    times = (f"compile ms median {statistics.median(fresh):.0f} max {max(fresh):.0f}, "
             if fresh else "")
    spills = sum(c.meta.resources.local_bytes > 0 for c in made)
    return (f"{len(made)} kernels, {len(fresh)} compiled here, {times}{spills} with spills, "
            f"{len(failed)} failed")


class Copies:
    """Plain device copies over buffers that all cases share."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.pairs: list[tuple[Any, Any]] = []

    def candidate(self, nbytes: int) -> Candidate:
        """Return copies that read and write nbytes together."""
        import cupy

        half = max(nbytes // 2 // 4096 * 4096, 4096)  # odd sizes copy at two thirds of the speed
        count = rotations(nbytes, self.device.profile.l2_bytes)
        self.pairs = [p for p in self.pairs if p[0].nbytes >= half]
        while len(self.pairs) < count:
            self.pairs.append((cupy.zeros(half, "u1"), cupy.zeros(half, "u1")))

        def copy(pair: tuple[Any, Any]) -> Callable[[int], object]:
            return lambda stream: self.device.copy(pair[1].data.ptr, pair[0].data.ptr, half,
                                                   stream)

        return Candidate([copy(pair) for pair in self.pairs[:count]], nbytes)


def torch_tensors(problem: Problem, arrays: Tensors) -> Tensors:
    """Return torch tensors with the shapes and strides of the problem over the arrays."""
    import torch

    found = []
    for spec, array in zip(problem.tensors, arrays, strict=True):
        if spec is None:
            found.append(None)
            continue
        flat = torch.as_tensor(array, device="cuda")
        other = {"bf16": torch.bfloat16, "f8e4m3": torch.float8_e4m3fn,
                 "f8e5m2": torch.float8_e5m2}.get(spec.dtype)
        seen = flat if other is None else flat.view(other)
        found.append(seen.as_strided(spec.shape, spec.strides))
    return found


def peer_candidate(views: Sequence[Tensors], call: Peer, nbytes: int) -> Candidate:
    """Return a candidate that calls torch on each set of tensors."""
    import torch

    def prepare(tensors: Tensors) -> Callable[[int], object]:
        def enqueue(stream: int) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                call(tensors)

        return enqueue

    return Candidate([prepare(tensors) for tensors in views], nbytes)


class Bench:
    """Runs cases on a device.

    Args:
        device: where.
        variants: time all realizations.
        compiled: time torch.compile as well.
        without: kernels to leave out.
    """

    def __init__(self, device: CudaDevice, variants: bool = False, compiled: bool = False,
                 without: Sequence[str] = ()) -> None:
        self.device, self.variants, self.compiled = device, variants, compiled
        self.without = without
        self.copies = Copies(device)
        self.pool: dict[tuple[str, int, int, int], Any] = {}

    def candidates_of(self, case: Case) -> list[Variant]:
        """Return the variants to time, the selector's choice first."""
        found = [v for v in usable(case.problem, self.device)
                 if v.kernel.name not in self.without]
        if not (self.variants or case.every):
            return found[:1]
        large = case.flops > 2e9 or case.problem.op_type.startswith("ATTENTION")
        worth = [v for v in found if not (large and v.kernel.name in SLOW)]
        return worth or found

    def work(self, case: Case) -> Iterator[tuple[Problem, Variant]]:
        """Yield what a case needs compiled."""
        yield from ((case.problem, variant) for variant in self.candidates_of(case))
        yield from ((problem, usable(problem, self.device)[0])
                    for problem in case.beside.values())

    def run(self, case: Case) -> Found:
        """Return times, errors and verdicts of a case."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = case.problem.attr_map.get("f32") == "tf32"
        sets = self._sets(case.problem, case.hot)
        views = [torch_tensors(case.problem, arrays) for arrays in sets]
        nbytes = problem_bytes(case.problem)
        peers, refused = self._peers(case, views[0])
        rivals = [name for name in peers if name not in case.others]
        candidates = {name: peer_candidate(views, call, nbytes) for name, call in peers.items()}
        ids, errors = [], {}
        for variant in self.candidates_of(case):
            candidate = problem_candidate(case.problem, self.device, sets, variant, case.constant)
            if peers:
                errors[variant.id] = _error(next(iter(peers.values())), case.problem, views[0],
                                            candidate)
            candidates[variant.id] = candidate
            ids.append(variant.id)
        kept = {name: sets if problem.tensors == case.problem.tensors
                else self._sets(problem, case.hot) for name, problem in case.beside.items()}
        for name, problem in case.beside.items():  # launches hold addresses, not arrays
            candidates[name] = problem_candidate(problem, self.device, kept[name])
        if any(goal.of == "copy" for goal in case.goals):
            candidates["copy"] = self._copy(nbytes, case.hot)
        times = self._times(case, candidates, ids, rivals)
        self._forget()
        return self._figures(case, times, ids, rivals, errors, refused, nbytes)

    def _sets(self, problem: Problem, hot: bool) -> list[Tensors]:
        return buffer_sets(problem, self.device, self.pool)[:1 if hot else None]

    def _copy(self, nbytes: int, hot: bool) -> Candidate:
        copies = self.copies.candidate(nbytes)
        return Candidate(copies.launches[:1], nbytes) if hot else copies

    def _peers(self, case: Case, tensors: Tensors) -> tuple[dict[str, Peer], dict[str, str]]:
        """Return the torch calls that take the case, and why the others do not."""
        import torch

        calls: dict[str, Callable[[], Peer]] = {
            name: lambda call=call: call for name, call in (case.peers | case.others).items()}
        if self.compiled:
            torch._dynamo.reset()
            calls |= case.compiled
        found, refused = {}, {}
        for name, make in calls.items():
            try:
                call = make()
                call(tensors)
                torch.cuda.synchronize()
                found[name] = call
            except Exception as error:  # each backend refuses in its own way
                refused[name] = f"{type(error).__name__}: {str(error)[:200]}"
        return found, refused

    def _times(self, case: Case, candidates: Mapping[str, Candidate], ids: Sequence[str],
               rivals: Sequence[str]) -> dict[str, dict[str, Timing]]:
        """Return times by regime; those after the first see the best rivals and variants only."""
        times: dict[str, dict[str, Timing]] = {}
        few = dict(candidates)
        for regime in case.regimes:
            times[regime] = found = measure(few, cold=not case.hot, **REGIMES[regime],
                                            l2_bytes=self.device.profile.l2_bytes)
            best = sorted(ids, key=lambda i: found[i].median)[:IN_BURST]
            rival = sorted(rivals, key=lambda i: found[i].median)[:1]
            named = {goal.of for goal in case.goals}
            few = {name: c for name, c in few.items()
                   if name in {ids[0], *best, *rival, *named}}
            ids = [name for name in ids if name in few]
            rivals = rival
        return times

    def _figures(self, case: Case, times: Mapping[str, Mapping[str, Timing]], ids: list[str],
                 rivals: list[str], errors: Mapping[str, float], refused: Mapping[str, str],
                 nbytes: int) -> Found:
        first = times[case.regimes[0]]
        best = min(ids, key=lambda name: first[name].median)
        figures: dict[str, Any] = {
            "selected": ids[0], "best": best, "loss": first[ids[0]].median / first[best].median - 1,
            "bytes": nbytes, "flops": case.flops, "errors": dict(errors), "refused": dict(refused)}
        for regime, found in times.items():
            figures[regime] = {"us": {name: t.median for name, t in found.items()},
                               "spread": {name: t.spread for name, t in found.items()},
                               "samples": list(found[ids[0]].samples)}
        verdicts = [verdict for goal in case.goals if (verdict := judge(
            goal, case.name, times[goal.regime or case.regimes[0]], ids[0], rivals))]
        if errors and not errors[ids[0]] < case.error:
            verdicts = wrong(verdicts, f"WRONG: error {errors[ids[0]]:.1e}")
        if not verdicts or len(ids) > 1:
            show(case, figures)
        return figures, verdicts

    def _forget(self) -> None:
        """Return memory when much of it is kept."""
        import cupy

        if sum(array.nbytes for array in self.pool.values()) > MOST_KEPT:
            self.pool.clear()
        cupy.get_default_memory_pool().free_all_blocks()


def _error(peer: Peer, problem: Problem, tensors: Tensors, ours: Candidate) -> float:
    """Return the largest relative L2 difference to torch's results; a NaN left over is bad."""
    import cupy
    import torch

    made = peer(tensors)
    wanted = [x.float().clone() for x in (made if isinstance(made, tuple | list) else (made,))]
    first = len(problem.inputs)
    found = tensors[first:first + len(wanted)]
    for x in found:
        x.fill_(math.nan if x.is_floating_point() else -1)
    torch.cuda.synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    ours.launches[0](stream.ptr)
    cupy.cuda.Device().synchronize()
    errors = [float((x.float() - w.reshape(x.shape)).norm() / w.norm().clamp(min=1e-30))
              for x, w in zip(found, wanted, strict=True)]
    return max(errors, key=lambda error: math.inf if math.isnan(error) else error)


def short(variant_id: str) -> str:
    """Return a variant's id without what is clear anyway."""
    for long, brief in (("gemm_bias_act_", ""), ("attention/attention_", ""), ("VECTORS=", "v"),
                        ("THREADS=", "t"), ("REDUCE=", ""), ("SCHEDULE=", ""), ("STAGES=", "st"),
                        ("cooperative", "coop"), ("STORES=", "s"), (",BN=", "x"), ("BM=", ""),
                        (",PDL=0", ""), ("PDL=1", "pdl")):
        variant_id = variant_id.replace(long, brief)
    return variant_id.split("/", 1)[-1]


def show(case: Case, figures: Mapping[str, Any]) -> None:
    """Print the selected variant, its time and speed, and the best variant where it is another."""
    us = figures[case.regimes[0]]["us"][figures["selected"]]
    speed = (f"{case.flops / us / 1e6:6.1f} TFLOP/s" if case.flops
             else f"{figures['bytes'] / us / 1e6:5.2f} TB/s")
    other = f"  loss {100 * figures['loss']:.1f} % to {short(figures['best'])}" * (
        figures["best"] != figures["selected"])
    click.echo(f"    {case.name:36.36} {us:9.2f} us {speed} {short(figures['selected'])}{other}"
               [:WIDTH])


Other = Callable[[Bench, Section], None]
"""A section that is no list of cases."""


def command(stem: str, sections: Mapping[str, Part], text: str | None,
            others: Mapping[str, Other] | None = None) -> click.Command:
    """Return the command line of a bench.

    Args:
        stem: of the result files.
        sections: name -> cases and conclusions.
        text: help.
        others: sections that are no lists of cases.
    """
    known: Mapping[str, Part | Other] = {**sections, **(others or {})}

    @click.command(help=text)
    @click.option("--out", type=click.Path(path_type=Path), required=True, help="result folder")
    @click.option("--only", default="", help=f"comma list of {', '.join(known)}")
    @click.option("--match", default="", help="comma list of parts of case names")
    @click.option("--variants", is_flag=True, help="time every variant, not only the selected one")
    @click.option("--without", default="", help="comma list of kernels to leave out")
    @click.option("--compile", "compiled", is_flag=True, help="time torch.compile as well")
    def main(out: Path, only: str, match: str, variants: bool, without: str,
             compiled: bool) -> None:
        bench = Bench(cuda_device(default_index()), variants, compiled, without.split(","))
        suffix = "_variants" * variants + "_compile" * compiled + "_part" * bool(match)
        names = only.split(",") if only else list(known)
        if unknown := set(names) - set(known):
            raise click.UsageError(f"no such section: {', '.join(sorted(unknown))}; "
                                   f"there are {', '.join(known)}")
        for name in names:
            section, part = Section(out / f"{stem}_{name}{suffix}.json"), known[name]
            if isinstance(part, Part):
                run_part(bench, part, section, match.split(","))
            else:
                part(bench, section)
            section.summary()

    return main


def run_part(bench: Bench, part: Part, section: Section, wanted: Sequence[str]) -> None:
    """Run the cases of a section whose names hold one of the wanted parts."""
    cases = [c for c in part.cases() if any(text in c.name for text in wanted)]
    click.echo(f"-- {section.path.stem}: " + compile_all(
        (pair for case in cases for pair in bench.work(case)), bench.device))
    for case in cases:
        section.run(case.name, lambda case=case: bench.run(case))
    section.conclude(part.conclude(section))
