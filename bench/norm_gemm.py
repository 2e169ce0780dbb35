"""A layer norm and the product behind it, in one launch and in two, beside each other.

    python -m bench.norm_gemm --out bench/results/h200 [--match PARTS]

Times every variant of NORM_GEMM and the pair of kernels that would be selected apart, on the layers
of encoders for growing numbers of rows. `predicted` is what a plan decides without evidence: the
shares of the peak in ge2/compiler/kernels/norm_gemm_plans.py follow from these figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import ge2.launch_table as table
from ge2.compiler.ir.nodes import Node
from ge2.compiler.kernels import selector
from ge2.compiler.kernels.lower import lower
from ge2.compiler.kernels.norm_gemm_plans import runs_apart
from ge2.evidence.measure import Candidate, measure
from ge2.launch.norm_gemm import norm_gemm_problem
from ge2.problem import Problem
from ge2.runtime.device import CudaDevice, cuda_device, default_index
from ge2.runtime.memory import SCRATCH

from .candidates import Tensors, buffer_sets, problem_bytes, problem_candidate
from .side_by_side import compile_all, short, usable
from .targets import WIDTH, Section, losses

ROUNDS = 10
ROWS = (16, 128, 512, 4096, 32768)
# (columns, length of a row): Q, K and V, and the first inner layer, of MiniLM, BERT and its large.
LAYERS = ((1152, 384), (1536, 384), (2304, 768), (3072, 768), (3072, 1024), (4096, 1024))

Part = tuple[Problem, tuple[int, ...]]
"""A problem, and where its tensors stand among those of the NORM_GEMM."""


def problems() -> Iterator[tuple[str, Problem]]:
    """Yield the cases by name."""
    for dtype in ("f16", "f32"):
        for n, k in LAYERS:
            for m in ROWS:
                yield f"{dtype} {m}x{n}x{k}", norm_gemm_problem(dtype, (m, n, k), trans_b=True)


def parts(problem: Problem) -> tuple[Part, Part]:
    """Return the norm and the product that a NORM_GEMM with rows as its second output is."""
    x, scale, b, shift, bias = problem.inputs[:5]
    y, rows = problem.outputs
    first = len(problem.inputs)
    attrs = problem.attr_map
    specs = {"x": x, "scale": scale, "b": b, "shift": shift, "bias": bias, "y": y, "rows": rows}
    present = {name: spec for name, spec in specs.items() if spec is not None}
    norm = lower(Node("LAYER_NORM", "norm", ("x", "scale", "shift"), ("rows",),
                      {"epsilon": attrs["epsilon"]}), present)
    product = lower(Node("GEMM_BIAS_ACT", "product", ("rows", "b", "bias"), ("y",),
                         {"trans_b": attrs["trans_b"], "act": "relu"}), present)
    absent = (-1,) * (len(product.inputs) - 3)
    return (norm, (0, 1, 3, first + 1)), (product, (first + 1, 2, 4, *absent, first))


def apart(problem: Problem, device: CudaDevice, sets: Sequence[Tensors]) -> Candidate:
    """Return a candidate that runs a NORM_GEMM as the two kernels that are selected for its parts.
    """
    bound = [(table.bind(part, selector.select(part, device.profile).variant, device.profile),
              slots) for part, slots in parts(problem)]
    workspace = max(record.workspace for records, _ in bound for record in records)
    semaphores = max(record.semaphores for records, _ in bound for record in records)
    scratch = SCRATCH.get(device, 0, workspace, semaphores) if workspace or semaphores else (0, 0)

    def prepare(tensors: Tensors) -> Callable[[int], object]:
        units = []
        for records, slots in bound:
            addresses = [tensors[s].data.ptr if s >= 0 else 0 for s in slots]
            for unit in device.prepare(records):
                unit.args.patch(addresses, *scratch)
                units.append(unit)

        def enqueue(stream: int) -> None:
            for unit in units:
                unit(stream)

        return enqueue

    return Candidate([prepare(tensors) for tensors in sets], problem_bytes(problem))


def run(problem: Problem, device: CudaDevice) -> dict[str, Any]:
    """Return the medians of a case in microseconds, and what a plan would choose."""
    sets = buffer_sets(problem, device)[:1]  # the layer before has just written the rows
    variants = usable(problem, device)
    timed = {v.id: problem_candidate(problem, device, sets, v) for v in variants}
    found = measure({**timed, "apart": apart(problem, device, sets)}, cold=False, rounds=ROUNDS)
    us = {name: timing.median for name, timing in found.items()}
    predicted = "apart" if runs_apart(problem, variants[0], device.profile) else variants[0].id
    best = min(us, key=lambda name: us[name])
    return {"us": us, "predicted": predicted, "best": best, "loss": us[predicted] / us[best] - 1}


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="result folder")
@click.option("--match", default="", help="comma list of parts of case names")
def main(out: Path, match: str) -> None:
    """Run the cases, write one file."""
    device = cuda_device(default_index())
    cases = [(name, p) for name, p in problems() if any(part in name for part in match.split(","))]
    click.echo(compile_all([(p, v) for _, p in cases for v in usable(p, device)], device))
    section = Section(out / "norm_gemm.json")
    for name, problem in cases:
        section.run(name, lambda problem=problem: (run(problem, device), ()))
        row = section.figures[name]
        if "us" in row:
            us, predicted = row["us"], row["predicted"]
            click.echo(f"    {name:24} apart {us['apart']:8.2f} us, best {us[row['best']]:8.2f}, "
                       f"predicted {us[predicted]:8.2f} {short(predicted)}"[:WIDTH])
    section.conclude(losses("one launch or two, and which variant: without evidence",
                            [row["loss"] for row in section.figures.values() if "loss" in row]))
    section.summary()


if __name__ == "__main__":
    main()
