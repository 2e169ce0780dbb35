"""Data movement, windows and convolutions as users run them, beside torch and a plain copy.

    python -m bench.operators --out bench/results/h200 [--only movement,windows,conv] [--variants]

Each operator is a graph of its own that goes through all passes; its launches and torch's are
captured into CUDA graphs and timed interleaved on buffers that exceed the L2 cache. With --variants
so are the other variants whose scores come near, for operators that are one kernel-level operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from ge2.compiler import opdefs
from ge2.compiler.ir.text import parse_graph
from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.metadata import Variant
from ge2.compiler.passes.pipeline import optimize
from ge2.contract import DTYPES, numpy_dtype
from ge2.evidence.device import DeviceProfile
from ge2.evidence.measure import Candidate, measure, rotations
from ge2.problem import Problem
from ge2.runtime.device import CudaDevice, cuda_device, default_index
from ge2.runtime.executor import Executable

from .operator_cases import Case, cases
from .targets import Found, Section, judged, paired, wrong

Enqueue = Callable[[int], object]
ROUNDS = 10
ERROR = 8e-3  # largest difference from torch's result, relative to its largest value
NEAR = 15.0  # points of score below the best


def random_array(dtype: str, shape: tuple[int, ...], span: int, seed: int) -> Any:
    """Return a CuPy array of random contents."""
    import cupy

    draw = cupy.random.default_rng(seed)
    if DTYPES[dtype].kind == "float":
        return draw.standard_normal(shape, dtype="f4").astype(numpy_dtype(dtype))
    return draw.integers(0, span, shape).astype(numpy_dtype(dtype))


class Bench:
    """One case with its buffers.

    Args:
        case: what is measured.
        device: on what.
    """

    def __init__(self, case: Case, device: CudaDevice) -> None:
        import cupy

        self.case, self.device = case, device
        self.graph = parse_graph(case.text, infer=opdefs.infer)
        self.executable = Executable(optimize(self.graph).graph, backend="cuda", device=device)
        inputs = [self.graph.types[name] for name in self.graph.inputs]
        output = self.graph.types["y"]
        shapes = [tuple(int(e) for e in t.shape) for t in (*inputs, output)]  # type: ignore[arg-type]
        sizes = [int(np.prod(s)) * DTYPES[t.dtype].itemsize
                 for s, t in zip(shapes, (*inputs, output), strict=True)]
        self.moved = self._moved(sizes)
        count = rotations(self.moved, device.profile.l2_bytes)
        self.sets = [[random_array(t.dtype, s, case.span, seed)
                      for t, s in zip(inputs, shapes, strict=False)] for seed in range(count)]
        self.outputs = [cupy.empty(shapes[-1], numpy_dtype(output.dtype)) for _ in range(count)]

    def _moved(self, sizes: list[int]) -> int:
        """Return bytes read and written: what a slice or gather leaves out is not read."""
        if any(op in self.case.text for op in ("SLICE(", "GATHER(")):
            return 2 * sizes[-1]
        return sum(sizes)

    def check(self, executable: Executable) -> float:
        """Return the largest difference from the first peer, relative to the largest value."""
        import cupy
        import torch

        feeds = dict(zip(self.graph.inputs, self.sets[0], strict=True))
        found = executable.run(feeds, outputs={"y": self.outputs[0]})["y"].astype("f4")
        peer = next(iter(self.case.peers.values()))
        wanted = peer(*(torch.as_tensor(array, device="cuda") for array in self.sets[0]))
        expected = cupy.asarray(wanted.float().contiguous())
        scale = float(cupy.abs(expected).max())
        return float(cupy.abs(found - expected.reshape(found.shape)).max()) / max(scale, 1e-30)

    def candidates(self, executables: Mapping[str, Executable]) -> dict[str, Candidate]:
        """Return executables of the graph, the peers and a copy of as many bytes."""
        import torch

        found = {name: Candidate(self._launches(executable.run), self.moved)
                 for name, executable in executables.items()}
        for name, call in self.case.peers.items():
            launches = [self._peer(call, arrays) for arrays in self.sets]
            # cuDNN tries its algorithms in the first call and then gives cached memory back, which
            # graphs captured before would still use.
            launches[0](torch.cuda.current_stream().cuda_stream)
            found[name] = Candidate(launches, self.moved)
        torch.cuda.synchronize()
        found["copy"] = Candidate(self._copies(), self.moved)
        return found

    def variants(self) -> dict[str, Executable]:
        """Return the other variants that may well be as fast; none for several operators."""
        steps = self.executable.plan().steps
        if len(steps) != 1 or steps[0].choice is None:
            return {}
        profile, chosen = self.device.profile, steps[0].choice.variant.id
        scores = {report.variant_id: report.score
                  for report in selector.rank(steps[0].problem, profile)
                  if report.score is not None}
        near = [name for name, score in scores.items()
                if score > max(scores.values()) - NEAR and name != chosen]
        return {name: self._pinned(registry.variant(name)) for name in near}

    def _pinned(self, variant: Variant) -> Executable:
        def choose(problem: Problem, profile: DeviceProfile) -> selector.Choice:
            return replace(selector.select(problem, profile), variant=variant)

        return Executable(self.executable.graph, backend="cuda", device=self.device, choose=choose)

    def _launches(self, run: Callable[..., Any]) -> list[Enqueue]:
        def launch(feeds: dict[str, Any], y: Any) -> Enqueue:
            return lambda stream: run(feeds, stream=stream, outputs={"y": y})

        return [launch(dict(zip(self.graph.inputs, arrays, strict=True)), y)
                for arrays, y in zip(self.sets, self.outputs, strict=True)]

    @staticmethod
    def _peer(call: Callable[..., Any], arrays: list[Any]) -> Enqueue:
        import torch

        tensors = [torch.as_tensor(a, device="cuda") for a in arrays]

        def enqueue(stream: int) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                call(*tensors)

        return enqueue

    def _copies(self) -> list[Enqueue]:
        import cupy

        half = self.moved // 2
        pairs = [(cupy.zeros(half, "u1"), cupy.zeros(half, "u1")) for _ in self.sets]

        def copy(source: Any, target: Any) -> Enqueue:
            return lambda stream: self.device.copy(target.data.ptr, source.data.ptr, half, stream)

        return [copy(*pair) for pair in pairs]


TARGETS = {"movement": "transpose, concat, slice, gather, pad, cast, copy",
           "windows": "pools and resize, copy", "conv": "f16 convolution, cuDNN"}


def run_case(case: Case, group: str, device: CudaDevice, variants: bool) -> Found:
    """Return microseconds per candidate, the share reached and what was launched."""
    bench = Bench(case, device)
    executables = {"ge2": bench.executable, **(bench.variants() if variants else {})}
    error = max(bench.check(executable) for executable in executables.values())
    times = measure(bench.candidates(executables), cold=True, l2_bytes=device.profile.l2_bytes,
                    rounds=ROUNDS)
    median = {name: timing.median for name, timing in times.items()}
    rivals = ["copy"] if case.target == "copy" else [n for n in case.peers if n in median]
    rival = min(rivals, key=lambda name: median[name])
    ratios = paired(times[rival], times["ge2"])
    steps = bench.executable.plan().steps
    verdicts = [judged(TARGETS[group], case.name, case.goal, ratios,
                       note=f"x {rival}, {median['ge2']:.1f} us")]
    if not error < ERROR:
        verdicts = wrong(verdicts, f"WRONG: error {error:.1e}")
    return {
        "us": median, "share": verdicts[0].value, "goal": case.goal,
        "of": case.target, "error": error,
        "launches": sum(len(step.records) for step in steps),
        "kernels": [step.choice.variant.id for step in steps if step.choice],
        "spread": {name: timing.spread for name, timing in times.items()},
        "tflops": case.flops / median["ge2"] / 1e6 if case.flops else None,
    }, verdicts


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="folder of results")
@click.option("--only", default="", help="comma list of groups")
@click.option("--variants", is_flag=True, help="also time variants that were not chosen")
def main(out: Path, only: str, variants: bool) -> None:
    """See the module."""
    import cupy

    device = cuda_device(default_index())
    groups = cases()
    for group in only.split(",") if only else groups:
        section = Section(out / f"operators_{group}{'_variants' * variants}.json")
        for case in groups[group]:
            section.run(case.name, lambda case=case, group=group: run_case(
                case, group, device, variants))
            cupy.get_default_memory_pool().free_all_blocks()
        section.summary()


if __name__ == "__main__":
    main()
