"""Per-node times of a run: kernel, time, bytes, arithmetic, share of what the device can do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..compiler.concrete import bind_symbols
from ..compiler.kernels.class_choice import problem_at
from ..compiler.kernels.work import bytes_of, flops_of, least_seconds
from .output import Report

if TYPE_CHECKING:
    from ..model import Model


@dataclass(frozen=True, slots=True)
class NodeTime:
    """One node, or one launch of it.

    Attributes:
        node, op, kernel: what ran; kernel is "numpy" on the cpu backend.
        seconds: of one execution, operands in cache.
        nbytes: read and written at least; 0 where unknown.
        flops: multiplications and additions of a matrix product or convolution, else 0.
        roofline: the device's least time for that over the measured time; 0 where unknown.
    """

    node: str
    op: str
    kernel: str
    seconds: float
    nbytes: int = 0
    flops: int = 0
    roofline: float = 0.0


def profile_model(model: Model, feeds: Mapping[str, Any]) -> list[NodeTime]:
    """Run a model once more and return the time of each node, in order."""
    model.run(feeds)
    if model.backend == "cpu":
        return _profile_cpu(model, feeds)
    return _profile_device(model, feeds)


def report_profile(rows: list[NodeTime], report: Report) -> None:
    """Print the table and keep it for JSON."""
    total = sum(row.seconds for row in rows)
    report.table(
        ("node", "operator", "kernel", "us", "share", "GB/s", "TFLOP/s", "roofline"),
        [(r.node, r.op, r.kernel, f"{1e6 * r.seconds:.2f}", f"{100 * r.seconds / total:.1f} %",
          f"{r.nbytes / r.seconds / 1e9:.0f}" if r.nbytes else "-",
          f"{r.flops / r.seconds / 1e12:.2f}" if r.flops else "-",
          f"{100 * r.roofline:.0f} %" if r.roofline else "-") for r in rows],
        right=frozenset({3, 4, 5, 6, 7}))
    report.line(f"  sum {1e6 * total:.1f} us")
    report.data["profile"] = [asdict(row) for row in rows]


def write_trace(rows: Iterable[NodeTime], path: str) -> None:
    """Write the nodes, one after the other, in the trace format of chrome://tracing."""
    events, at = [], 0.0
    for row in rows:
        events.append({"name": row.node, "cat": row.op, "ph": "X", "pid": 0, "tid": 0,
                       "ts": at, "dur": 1e6 * row.seconds,
                       "args": {"kernel": row.kernel, "bytes": row.nbytes, "flops": row.flops}})
        at += 1e6 * row.seconds
    try:
        Path(path).write_text(json.dumps({"traceEvents": events}, indent=1), encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="--trace") from None


def _profile_cpu(model: Model, feeds: Mapping[str, Any]) -> list[NodeTime]:
    rows: list[NodeTime] = []
    model.program.run({**feeds, **model.state},
                      lambda node, seconds: rows.append(
                          NodeTime(node.name, node.op, "numpy", max(seconds, 1e-9))))
    return rows


def _profile_device(model: Model, feeds: Mapping[str, Any]) -> list[NodeTime]:
    import time

    rows: list[NodeTime] = []
    executable = model.executable
    device = executable.device.profile
    values = bind_symbols(executable.graph, {name: tuple(feeds[name].shape)
                                             for name in executable.graph.inputs})

    def observe(step: Any, unit: Any, stream: int) -> None:
        if model.backend == "cuda":
            from ..evidence.measure import measure

            seconds = 1e-6 * measure({"unit": unit}, cold=False, rounds=5)["unit"].median
        else:
            start = time.perf_counter()
            unit(stream)
            seconds = time.perf_counter() - start
        single = len(step.records) == 1 and model.backend == "cuda"
        problem = problem_at(step.problem, values)
        rows.append(NodeTime(
            step.node.name, step.node.op, step.choice.variant.id, seconds,
            bytes_of(problem), flops_of(problem),
            least_seconds(problem, device) / seconds if single else 0.0))

    executable.observer = observe
    try:
        model.run(feeds)
    finally:
        executable.observer = None
    return rows
