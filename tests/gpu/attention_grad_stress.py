"""Many short tiles through every wgmma gradient variant, several times: run by test_attention.

See attention_stress. What is right here are the gradients of another kernel; statistics are made
up, since both kernels take them as they come.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import ge2.launch_table as table
from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.metadata import Variant
from ge2.launch.attention_grad import gradient_problem
from ge2.problem import Problem
from ge2.runtime import jit
from ge2.runtime.device import CudaDevice, cuda_device, default_index
from ge2.runtime.memory import SCRATCH

KERNEL, OTHER = "attention_grad_wgmma", "attention_grad_mma"
LENGTHS = (1, 64, 129, 385, 1025)
HEADS = (2, 96)  # samples, heads: more tiles than multiprocessors at every length
SIZES = (32, 64, 96, 128)
REPEATS = 8
ERROR = 2e-3  # of f16, whole gradients; both kernels round as often


def cases(device: CudaDevice) -> Iterator[tuple[Problem, list[Variant]]]:
    """Yield each length, plain and causal, with the variants that take the head size."""
    for causal, size, n in product((False, True), SIZES, LENGTHS):
        problem = gradient_problem("f16", (*HEADS, n, size), groups=HEADS[1] // 2, causal=causal)
        reports = selector.rank(problem, device.profile, kernels=[registry.get(KERNEL)])
        yield problem, [registry.variant(r.variant_id) for r in reports if r.score is not None]


def inputs_of(problem: Problem) -> list[Any]:
    """Return random operands, and log-sum-exps about those of random scores."""
    import cupy

    draw = cupy.random.default_rng(7)
    found: list[Any] = [
        None if s is None else draw.standard_normal(s.shape, dtype="f4").astype(
            "f4" if s.dtype == "f32" else "f2") for s in problem.inputs]
    keys = problem.inputs[1]
    assert keys is not None
    found[4] = abs(found[4]) * 0.1 + math.log(keys.shape[2] + 1.0)
    return found


def gradients(device: CudaDevice, variant: Variant, problem: Problem, inputs: list[Any],
              repeats: int) -> Iterator[list[Any]]:
    """Yield the gradients of each repeat."""
    import cupy

    records = table.bind(problem, variant, device.profile)
    scratch = SCRATCH.get(device, 0, max(r.workspace for r in records), 0)
    units = device.prepare(records)
    outputs = [cupy.empty(spec.shape, "f2") for spec in problem.outputs]
    for unit in units:
        unit.args.patch([0 if b is None else b.data.ptr for b in (*inputs, *outputs)], *scratch)
    for _ in range(repeats):
        for x in outputs:
            x.fill(cupy.nan)
        cupy.cuda.Device().synchronize()
        for unit in units:
            unit(0)
        cupy.cuda.Device().synchronize()
        yield [x.copy() for x in outputs]


def run(device: CudaDevice, variant: Variant, problem: Problem) -> str:
    """Return what is wrong; empty where nothing is."""
    import cupy

    inputs = inputs_of(problem)
    (other,) = registry.get(OTHER).variants
    (wanted,) = gradients(device, other, problem, inputs, 1)
    first: list[Any] = []
    for repeat, found in enumerate(gradients(device, variant, problem, inputs, REPEATS)):
        first = first or found
        for name, x, w, same in zip("qkv", found, wanted, first, strict=True):
            norm = float(cupy.linalg.norm(w.astype("f4")))
            error = float(cupy.linalg.norm(x.astype("f4") - w.astype("f4"))) / max(norm, 1e-6)
            if not error < ERROR:
                return f"gradient of {name} is off by {error:.1e} at repeat {repeat}"
            if not bool((x.view("u2") == same.view("u2")).all()):
                return f"gradient of {name} differs from the first at repeat {repeat}"
    return ""


def main() -> int:
    """Run all cases, naming each before it starts."""
    device = cuda_device(default_index())
    found = [(variant, problem) for problem, variants in cases(device) for variant in variants]
    others = [(registry.get(OTHER).variants[0], problem) for _, problem in found]
    jit.try_compile({record.kernel for variant, problem in (*found, *others)
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
