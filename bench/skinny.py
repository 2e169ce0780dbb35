"""Products of a few rows with large weights, and f32 products, beside torch and a plain copy.

    python -m bench.skinny --out bench/results/h200 [--only NAMES] [--match PARTS] [--variants]

Weights come from memory (cold), all candidates are timed in one process, interleaved. torch is
the fastest of its calls that compute the same. "nk" weights are stored [N, K] as in F.linear, "kn"
[K, N]. With --variants every kernel variant that can solve a problem is timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ge2.compiler.kernels.metadata import Variant
from ge2.compiler.opdefs.gemm_epilogue import gemm_epilogue
from ge2.evidence.measure import Candidate, Timing, measure
from ge2.problem import Problem, TensorSpec
from ge2.runtime.device import CudaDevice, cuda_device, default_index

from .candidates import buffer_sets, problem_bytes, problem_candidate
from .results import write_results
from .side_by_side import Copies, compile_all, torch_tensors, usable

ROUNDS = 10
SHOWN = 6
Calls = Mapping[str, Callable[[Sequence[Any]], Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """act(X W + bias) for X [m, k] and weights of k x n.

    Attributes:
        m, n, k: extents.
        dtype: of all tensors.
        layout: "nk" or "kn": how the weights are stored.
        act: "none" (then without bias), "relu", "gelu" or "gelu_tanh".
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    layout: str = "nk"
    act: str = "none"

    @property
    def name(self) -> str:
        """A short name."""
        tail = "" if self.act == "none" else f" bias+{self.act}"
        return f"{self.m}x{self.n}x{self.k} {self.dtype} {self.layout}{tail}"

    @property
    def problem(self) -> Problem:
        """What ge2 solves."""
        stored = (self.n, self.k) if self.layout == "nk" else (self.k, self.n)
        fused = self.act != "none"
        epilogue = gemm_epilogue(self.dtype, (self.dtype if fused else None, None), 1.0, 1.0,
                                 self.act, 0.01)
        attrs = {"trans_a": False, "trans_b": self.layout == "nk", "alpha": 1.0, "beta": 1.0,
                 "act": self.act, "leaky_slope": 0.01, "epilogue": epilogue}
        bias = TensorSpec(self.dtype, (self.m, self.n), (0, 1)) if fused else None
        return Problem(
            "GEMM_BIAS_ACT",
            (TensorSpec.dense(self.dtype, (self.m, self.k)), TensorSpec.dense(self.dtype, stored),
             bias, None),
            (TensorSpec.dense(self.dtype, (self.m, self.n)),), tuple(sorted(attrs.items())))

    def calls(self) -> Calls:
        """Return torch's ways to compute the same, on the problem's tensors."""
        import torch

        turn = self.layout == "nk"

        def weights(t: Sequence[Any]) -> Any:
            return t[1].t() if turn else t[1]

        if self.act == "none":
            found = {"mm": lambda t: torch.mm(t[0], weights(t), out=t[4]),
                     "linear": lambda t: torch.nn.functional.linear(
                         t[0], t[1] if turn else t[1].t())}
            if self.m == 1:
                found["mv"] = lambda t: torch.mv(weights(t).t(), t[0][0], out=t[4][0])
            return found
        use_gelu = self.act != "relu"
        fused = torch.ops.aten._addmm_activation.out

        def unfused(t: Sequence[Any]) -> Any:
            torch.addmm(t[2][0], t[0], weights(t), out=t[4])
            if use_gelu:
                kind = "tanh" if self.act == "gelu_tanh" else "none"
                return torch.ops.aten.gelu.out(t[4], approximate=kind, out=t[4])
            return torch.relu_(t[4])

        found = {"addmm, act": unfused}
        if self.act != "gelu":  # torch's fused form knows only the tanh form of GELU
            found["_addmm_activation"] = lambda t: fused(t[2][0], t[0], weights(t),
                                                         use_gelu=use_gelu, out=t[4])
        return found


def skinny(rows: Sequence[int]) -> Iterator[Case]:
    """Large and small weights in both layouts."""
    for m in rows:
        for layout in ("nk", "kn"):
            for n, k in ((14336, 4096), (4096, 14336), (4096, 4096), (2048, 2048), (1024, 1024)):
                yield Case(m, n, k, layout=layout)


def other_skinny() -> Iterator[Case]:
    """Row counts, extents, dtypes and epilogues besides those of the targets."""
    for m in (2, 8, 24, 32, 48):
        yield Case(m, 4096, 4096)
        yield Case(m, 11008, 4096, dtype="f16", layout="kn")
    for m, act in ((1, "gelu_tanh"), (16, "relu"), (16, "gelu"), (64, "gelu_tanh")):
        yield Case(m, 4096, 4096, act=act)
        yield Case(m, 14336, 4096, act=act)
    yield Case(7, 5120, 3072, layout="kn")
    yield Case(3000, 16, 4096)
    yield Case(4096, 8, 4096, layout="kn", dtype="f16")


def f32_cases() -> Iterator[Case]:
    """Products on CUDA cores."""
    for side in (1024, 2048, 4096, 8192):
        yield Case(side, side, side, "f32", "kn")
    yield Case(4096, 4096, 4096, "f32", "nk")
    yield Case(1024, 1024, 1024, "f32", "nk", "relu")
    yield Case(4096, 4096, 1024, "f32", "kn", "gelu_tanh")
    yield Case(1536, 3072, 2048, "f32", "nk", "relu")
    yield Case(2048, 1024, 8192, "f32", "kn")
    yield Case(1000, 3000, 2000, "f32", "kn")


SECTIONS: Mapping[str, Callable[[], Iterator[Case]]] = {
    "m1": lambda: skinny((1,)),
    "m4": lambda: skinny((4,)),
    "m16": lambda: skinny((16,)),
    "m64": lambda: skinny((64,)),
    "skinny": other_skinny,
    "f32": f32_cases,
}


def torch_candidate(case: Case, sets: Sequence[Any], call: Callable[[Sequence[Any]], Any]
                    ) -> Candidate:
    """Return a candidate that calls torch on the case's buffers."""
    import torch

    def prepare(arrays: Any) -> Callable[[int], object]:
        tensors = torch_tensors(case.problem, arrays)

        def enqueue(stream: int) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                call(tensors)

        return enqueue

    return Candidate([prepare(arrays) for arrays in sets], problem_bytes(case.problem))


def relative_error(case: Case, arrays: Any, ours: Callable[[int], object]) -> float:
    """Return the relative L2 difference to torch's result in f64; the output is poisoned before."""
    import cupy
    import torch

    x, w, bias, _, y = torch_tensors(case.problem, arrays)
    right = w.t() if case.layout == "nk" else w
    wanted = x[:64].double() @ right.double()
    if bias is not None:
        wanted = wanted + bias[:1].double()
        wanted = (torch.relu(wanted) if case.act == "relu" else torch.nn.functional.gelu(
            wanted, approximate="tanh" if case.act == "gelu_tanh" else "none"))
    arrays[4].view("u1").fill(0xFF)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    ours(stream.ptr)
    cupy.cuda.Device().synchronize()
    if not bool(torch.isfinite(y).all()):
        return math.nan
    return float((y[:64].double() - wanted).norm() / wanted.norm())


def run(case: Case, device: CudaDevice, copies: Copies, variants: Sequence[Variant]
        ) -> dict[str, Any]:
    """Return microseconds, errors and ratios of one case."""
    problem = case.problem
    sets = buffer_sets(problem, device)
    ours, errors = {}, {}
    for variant in variants:
        ours[variant.id] = problem_candidate(problem, device, sets, variant, constant=(1,))
        errors[variant.id] = relative_error(case, sets[0], ours[variant.id].launches[0])
    peers = {name: torch_candidate(case, sets, call) for name, call in case.calls().items()}
    nbytes = problem_bytes(problem)
    times = measure({**ours, **peers, "copy": copies.candidate(nbytes)}, cold=True, rounds=ROUNDS,
                    l2_bytes=device.profile.l2_bytes)
    return figures_of(case, times, list(ours), list(peers), errors, nbytes)


def figures_of(case: Case, times: Mapping[str, Timing], ids: Sequence[str], peers: Sequence[str],
               errors: Mapping[str, float], nbytes: int) -> dict[str, Any]:
    """Return the figures of a case as plain data."""
    us = {name: timing.median for name, timing in times.items()}
    peer = min(peers, key=lambda name: us[name])
    best = min(ids, key=lambda name: us[name])
    return {
        "us": us, "spread": {k: t.spread for k, t in times.items()}, "errors": dict(errors),
        "selected": ids[0], "best": best, "torch_call": peer, "bytes": nbytes,
        "torch_ratio": us[peer] / us[ids[0]], "best_ratio": us[peer] / us[best],
        "copy_share": us["copy"] / us[ids[0]], "tbps": nbytes / us[ids[0]] / 1e6,
        "tflops": 2e-6 * case.m * case.n * case.k / us[ids[0]],
    }


def show(case: Case, row: Mapping[str, Any]) -> None:
    """Print one line, and the best variants where several were timed."""
    us, ids = row["us"], sorted(row["errors"], key=lambda name: row["us"][name])
    speed = f"{row['tflops']:5.1f} TFLOP/s" if case.dtype == "f32" else f"{row['tbps']:.2f} TB/s"
    bound = 2e-6 if case.dtype == "f32" else 4e-3
    wrong = [name for name, error in row["errors"].items() if not error < bound]
    click.echo(f"{case.name:34} {us[row['selected']]:8.2f} us {speed} {row['copy_share']:.2f} copy "
               f"{row['torch_ratio']:.3f} x {row['torch_call']}  {short(row['selected'])}"
               + "".join(f"  WRONG {short(name)}" for name in wrong[:3]))
    if len(ids) > 1:
        click.echo("    " + "  ".join(f"{short(i)} {us[row['torch_call']] / us[i]:.3f}"
                                      for i in ids[:SHOWN]))


def short(variant_id: str) -> str:
    """Return a variant's id without what all of them share."""
    return variant_id.removeprefix("gemm/gemm_bias_act_")


def geometric_mean(figures: Mapping[str, Any], most: int) -> float:
    """Return the mean ratio to torch over the square cases up to most on a side."""
    ratios = [row["torch_ratio"] for name, row in figures.items() if "torch_ratio" in row
              and all(int(x) <= most for x in name.split()[0].split("x")[1:])]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="result folder")
@click.option("--only", default="", help="comma list of sections")
@click.option("--match", default="", help="comma list of parts of case names")
@click.option("--variants", is_flag=True, help="time every variant")
@click.option("--kernel", default="", help="time only variants whose id contains this")
def main(out: Path, only: str, match: str, variants: bool, kernel: str) -> None:
    """Run the sections, write a file for each."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    device = cuda_device(default_index())
    copies = Copies(device)

    def candidates(case: Case) -> list[Variant]:
        found = [v for v in usable(case.problem, device) if kernel in v.id]
        return found if variants else found[:1]

    groups = {name: [c for c in SECTIONS[name]() if any(p in c.name for p in match.split(","))]
              for name in (only.split(",") if only else SECTIONS)}
    click.echo(compile_all([(case.problem, v) for cases in groups.values() for case in cases
                            for v in candidates(case)], device))
    for name, cases in groups.items():
        figures: dict[str, Any] = {}
        for case in cases:
            try:
                figures[case.name] = run(case, device, copies, candidates(case))
                show(case, figures[case.name])
            except Exception as error:  # a broken kernel or a peer must not hide the others
                click.echo(f"FAIL {case.name}: {type(error).__name__}: {str(error)[:300]}")
                figures[case.name] = {"failed": str(error)}
            _free()
        click.echo(f"{name}: geometric mean x torch, N and K up to 4096: "
                   f"{geometric_mean(figures, 4096):.3f}")
        suffix = "_variants" if variants else ""
        write_results(out / f"skinny_{name}{suffix}.json", figures)


def _free() -> None:
    import cupy
    import torch

    cupy.get_default_memory_pool().free_all_blocks()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
