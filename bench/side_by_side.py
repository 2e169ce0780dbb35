"""Memory-bound kernels beside torch and a plain copy, in one process: what the benches share."""


from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from .results import write_results

ROUNDS = 10
MOST_KEPT = 24 << 30  # bytes of operands kept from case to case
Tensors = list[Any]
Peer = Callable[[Sequence[Any]], Any]
"""Takes torch tensors of inputs and outputs; returns the first output."""


@dataclass(frozen=True, slots=True)
class Case:
    """One operator on one shape.

    Attributes:
        name: for the table.
        problem: what ge2 solves.
        peer: what torch does eagerly.
        goal: wanted share of a copy of as many bytes, or with `ratio` of the best peer.
        ratio: whether the goal is a ratio to the best peer.
        hot: operands stay in the L2 cache.
    """

    name: str
    problem: Problem
    peer: Peer | None
    goal: float
    ratio: bool = False
    hot: bool = False


Sections = Mapping[str, Callable[[], Iterator[Case]]]


def usable(problem: Problem, device: CudaDevice) -> list[Variant]:
    """Return the variants that can solve a problem, best score first."""
    reports = selector.rank(problem, device.profile)
    return [registry.variant(r.variant_id) for r in reports if r.score is not None]


def compile_all(work: Sequence[tuple[Problem, Variant]], device: CudaDevice) -> str:
    """Compile every kernel of the work in parallel; return a line about the times."""
    sources = {record.kernel for problem, variant in work
               for record in table.bind(problem, variant, device.profile)}
    done = jit.try_compile(sources, device.profile.arch)
    failed = [error for error in done.values() if isinstance(error, Ge2Error)]
    for error in failed[:3]:
        click.echo(f"FAIL {str(error)[:600]}")
    metas = [c.meta for c in done.values() if isinstance(c, jit.Compiled)]
    times = [m.compile_ms for m in metas] or [0.0]
    spills = sum(m.resources.local_bytes > 0 for m in metas)
    return (f"{len(metas)} kernels, compile ms median {statistics.median(times):.0f} "
            f"max {max(times):.0f}, {spills} with spills, {len(failed)} failed")


class Copies:
    """Plain device copies over buffers that all cases share."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.pairs: list[tuple[Any, Any]] = []

    def candidate(self, nbytes: int) -> Candidate:
        """Return copies that read and write nbytes together."""
        import cupy

        half = nbytes // 2 // 4096 * 4096  # odd sizes copy at two thirds of the speed
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


def peer_candidate(case: Case, sets: Sequence[Tensors], call: Callable[[Tensors], Any],
                   nbytes: int) -> Candidate:
    """Return a candidate that calls torch on the case's buffers."""
    import torch

    def prepare(arrays: Tensors) -> Callable[[int], object]:
        tensors = torch_tensors(case.problem, arrays)

        def enqueue(stream: int) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                call(tensors)

        return enqueue

    return Candidate([prepare(arrays) for arrays in sets], nbytes)


def relative_error(case: Case, arrays: Tensors, ours: Callable[[int], object]) -> float:
    """Return the relative L2 difference between ge2's first output and torch's; NaN is bad."""
    import cupy

    if case.peer is None:
        return 0.0
    tensors = torch_tensors(case.problem, arrays)
    first = len(case.problem.inputs)
    wanted = case.peer(tensors).float().flatten().clone()
    arrays[first].view("u1").fill(0xFF)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    ours(stream.ptr)
    cupy.cuda.Device().synchronize()
    found = tensors[first].float().flatten()
    scale = float(wanted.norm())
    return float((found - wanted).norm()) / max(scale, 1e-30)


class Bench:
    """Runs cases on a device.

    Args:
        device: where.
        variants: time all realizations.
        compiled: time torch.compile as well.
        without: kernels to leave out.
    """

    def __init__(self, device: CudaDevice, variants: bool, compiled: bool,
                 without: Sequence[str] = ()) -> None:
        self.device, self.variants, self.compiled = device, variants, compiled
        self.without = without
        self.copies = Copies(device)
        self.pool: dict[tuple[str, int, int, int], Any] = {}

    def candidates_of(self, case: Case) -> list[Variant]:
        """Return the variants to time, the selector's choice first."""
        found = [v for v in usable(case.problem, self.device)
                 if v.kernel.name not in self.without]
        return found if self.variants else found[:1]

    def run_all(self, cases: Sequence[Case]) -> dict[str, Any]:
        """Run cases one after the other, printing a line for each; one that fails says so."""
        import cupy

        figures: dict[str, Any] = {}
        for case in cases:
            try:
                figures[case.name] = self.run(case)
                show(case, figures[case.name], self.variants)
            except Exception as error:  # a broken kernel or a peer must not hide the others
                click.echo(f"FAIL {case.name}: {type(error).__name__}: {str(error)[:300]}")
                figures[case.name] = {"failed": str(error)}
            if sum(array.nbytes for array in self.pool.values()) > MOST_KEPT:
                self.pool.clear()
                cupy.get_default_memory_pool().free_all_blocks()
        return figures

    def run(self, case: Case) -> dict[str, Any]:
        """Return microseconds and errors per candidate."""
        device, problem = self.device, case.problem
        sets = buffer_sets(problem, device, self.pool)[:1 if case.hot else None]
        nbytes = problem_bytes(problem)
        ours, errors = {}, {}
        for variant in self.candidates_of(case):
            candidate = problem_candidate(problem, device, sets, variant)
            errors[variant.id] = relative_error(case, sets[0], candidate.launches[0])
            ours[variant.id] = candidate
        others = {"copy": self.copies.candidate(nbytes)}
        if case.hot:
            others["copy"] = Candidate(others["copy"].launches[:1], nbytes)
        if case.peer is not None:
            others["torch"] = peer_candidate(case, sets, case.peer, nbytes)
            if self.compiled:
                import torch

                torch._dynamo.reset()
                call = torch.compile(case.peer, dynamic=False)
                others["compile"] = peer_candidate(case, sets, call, nbytes)
        times = measure({**ours, **others}, cold=not case.hot,
                        rounds=ROUNDS // 2 if self.variants else ROUNDS,
                        l2_bytes=device.profile.l2_bytes)
        return self._figures(case, times, list(ours), errors, nbytes)

    def _figures(self, case: Case, times: dict[str, Timing], ids: list[str],
                 errors: dict[str, float], nbytes: int) -> dict[str, Any]:
        median = {name: timing.median for name, timing in times.items()}
        best = min(ids, key=lambda name: median[name])
        return {
            "us": median, "spread": {k: t.spread for k, t in times.items()}, "errors": errors,
            "selected": ids[0], "best": best, "bytes": nbytes, "goal": case.goal,
            "share": median["copy"] / median[ids[0]], "best_share": median["copy"] / median[best],
            "tbps": nbytes / median[ids[0]] / 1e6,
            "peer": min((median[k] for k in ("torch", "compile") if k in median),
                        default=math.nan) / median[ids[0]],
        }


def short(variant_id: str) -> str:
    """Return a variant's id without what all of them share."""
    return (variant_id.removeprefix("row/").replace("VECTORS=", "v").replace("THREADS=", "t")
            .replace("REDUCE=", "").replace("BLOCKS=", "c").replace("row_", ""))


def show(case: Case, row: dict[str, Any], everything: bool) -> None:
    """Print one line, or with all variants their shares, best first."""
    value = row["peer"] if case.ratio else row["share"]
    mark = "ok " if value >= case.goal else "LOW"
    worst = max(row["errors"].values(), default=0.0)
    text = (f"{mark} {case.name:28} {row['us'][row['selected']]:8.2f} us {row['tbps']:5.2f} TB/s "
            f"{row['share']:.3f} of copy, {row['peer']:.2f} x torch  {short(row['selected'])}")
    if everything:
        ids = sorted(row["errors"], key=lambda name: row["us"][name])
        text += " | " + " ".join(
            f"{short(name)} {row['us']['copy'] / row['us'][name]:.3f}" for name in ids[:5])
    click.echo(text + (f"  ERROR {worst:.1e}" if not worst < 0.01 else ""))


def command(stem: str, sections: Sections, text: str | None) -> click.Command:
    """Return the command line of a bench.

    Args:
        stem: of the result files.
        sections: name -> cases.
        text: help.
    """
    @click.command(help=text)
    @click.option("--out", type=click.Path(path_type=Path), required=True, help="result folder")
    @click.option("--only", default="", help="comma list of sections")
    @click.option("--match", default="", help="comma list of parts of case names")
    @click.option("--variants", is_flag=True, help="time every realization")
    @click.option("--without", default="", help="comma list of kernels to leave out")
    @click.option("--compile", "compiled", is_flag=True, help="time torch.compile as well")
    def main(out: Path, only: str, match: str, variants: bool, without: str,
             compiled: bool) -> None:
        bench = Bench(cuda_device(default_index()), variants, compiled, without.split(","))
        wanted = match.split(",")
        groups = {name: [c for c in sections[name]() if any(part in c.name for part in wanted)]
                  for name in (only.split(",") if only else sections)}
        click.echo(compile_all([(case.problem, variant) for cases in groups.values()
                                for case in cases for variant in bench.candidates_of(case)],
                               bench.device))
        for name, cases in groups.items():
            figures = bench.run_all(cases)
            suffix = "_variants" if variants else "_compile" if compiled else ""
            write_results(out / f"{stem}_{name}{suffix}.json", figures)

    return main
