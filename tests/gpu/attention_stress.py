"""Many short tiles through every wgmma attention variant, several times: run by test_attention.

A kernel whose warp groups wait for each other for ever cannot be stopped, only its process can; and
a missing fence spoils a few rows of a hundred thousand, at another place each time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import ge2.launch_table as table
from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.metadata import Variant
from ge2.launch.attention_examples import attention_problem
from ge2.problem import Problem
from ge2.runtime import jit
from ge2.runtime.device import CudaDevice, cuda_device, default_index
from ge2.runtime.memory import SCRATCH

KERNEL = "attention_wgmma"
LENGTHS = (1, 64, 127, 129, 300, 385, 511, 1025)
HEADS = (2, 128)  # samples, heads: more tiles than multiprocessors at every length
SIZES = (32, 64, 80, 128, 192, 256)
REPEATS = 12
ROW_ERROR = 2e-3  # of f16; rows without a fault have 4e-4


def cases(device: CudaDevice) -> Iterator[tuple[Variant, Problem]]:
    """Yield each length, plain and causal, with every variant that takes the head size."""
    for causal, size in product((False, True), SIZES):
        problems = [attention_problem("f16", (*HEADS, n, size), causal=causal, lse=True)
                    for n in LENGTHS]
        reports = selector.rank(problems[0], device.profile, kernels=[registry.get(KERNEL)])
        for report in reports:
            if report.score is not None:
                variant = registry.variant(report.variant_id)
                yield from ((variant, problem) for problem in problems)


def expected(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Return attention in f32, one sample at a time."""
    import cupy

    found = cupy.empty(q.shape, "f4")
    n = q.shape[2]
    hidden = cupy.triu(cupy.ones((n, n), bool), 1) if causal else None
    for sample in range(q.shape[0]):
        scores = q[sample].astype("f4") @ k[sample].astype("f4").swapaxes(1, 2)
        scores *= q.shape[3] ** -0.5
        if hidden is not None:
            scores[:, hidden] = -cupy.inf
        scores -= scores.max(-1, keepdims=True)
        weights = cupy.exp(scores)
        found[sample] = weights / weights.sum(-1, keepdims=True) @ v[sample].astype("f4")
    return found


def run(device: CudaDevice, variant: Variant, problem: Problem) -> str:
    """Return what is wrong; empty where nothing is."""
    import cupy

    draw = cupy.random.default_rng(7)
    shape = problem.outputs[0].shape
    q, k, v = (draw.standard_normal(shape, dtype="f4").astype("f2") for _ in range(3))
    y, lse = cupy.empty(shape, "f2"), cupy.empty(shape[:3], "f4")
    records = table.bind(problem, variant, device.profile)
    scratch = SCRATCH.get(device, 0, 0, max(r.semaphores for r in records))
    units = device.prepare(records)
    buffers = [q, k, v, *[None] * (len(problem.inputs) - 3), y, lse]
    for unit in units:
        unit.args.patch([0 if b is None else b.data.ptr for b in buffers], *scratch)
    wanted = expected(q, k, v, problem.attr_map["right_window_size"] == 0)
    scale = cupy.linalg.norm(wanted, axis=-1)
    for repeat in range(REPEATS):
        y.fill(cupy.nan)
        lse.fill(cupy.nan)
        cupy.cuda.Device().synchronize()
        for unit in units:
            unit(0)
        cupy.cuda.Device().synchronize()
        error = cupy.linalg.norm(y.astype("f4") - wanted, axis=-1) / scale
        wrong = int((~(error < ROW_ERROR)).sum())
        if wrong or not bool(cupy.isfinite(lse).all()):
            return f"{wrong} rows wrong by up to {float(error.max()):.1e} at repeat {repeat}"
    return ""


def main() -> int:
    """Run all cases, naming each before it starts."""
    device = cuda_device(default_index())
    found = list(cases(device))
    jit.try_compile({record.kernel for variant, problem in found
                     for record in table.bind(problem, variant, device.profile)},
                    device.profile.arch)
    faults = 0
    for variant, problem in found:
        name = f"{variant.id} {problem.outputs[0].shape} {problem.attr_map['right_window_size']}"
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
        if fault := run(device, variant, problem):
            faults += 1
            sys.stdout.write(f"WRONG {name}: {fault}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
