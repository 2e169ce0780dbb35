"""Launch rules of the lab's primitives: one consumer per primitive, fed by any realization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.ir.row_ops import build_row_op
from ..compiler.kernels.headers import headers_of
from ..compiler.kernels.row_plans import row_access, row_layout, row_op_of
from ..compiler.kernels.row_ring_plans import state_bytes
from ..problem import Problem, TensorSpec
from .check_lab import WINDOW_SLACK, WINDOW_TILE
from .record import (
    WORKSPACE,
    ArgsBuilder,
    KernelSource,
    LaunchRecord,
    args_checks,
    args_dtype,
)
from .row import ALIGN_SLACK, is_empty, row_context, row_problem, row_record
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

THREADS = 256
CLUSTER = 4
SCRATCH = THREADS * 64 + 1024  # what a realization may use
BLOCK_SCRATCH = 1024
MIN_BLOCKS = 1  # that share a multiprocessor: as many registers as the compiler likes
STREAM_ARGS = args_dtype(("scores", "u8"), ("values", "u8"), ("y", "u8"), ("n", "i8"))
STAGE_ARGS = args_dtype(("x", "u8"), ("w", "u8"), ("y", "u8"), ("tiles", "i8"), ("taps", "i8"))
REMAT_ARGS = args_dtype(("x", "u8"), ("dy", "u8"), ("y", "u8"), ("dx", "u8"), ("values", "u8"),
                        ("statistics", "u8"), ("n", "i8"))
FUSE_ARGS = args_dtype(("from", "u8"), ("bias", "u8"), ("scale", "u8"), ("residual", "u8"),
                       ("to", "u8"), ("inverse", "u8"), ("n", "i8"))

# The launches of each treatment of the chain's boundaries, as steps of lab_fuse.
FUSIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "unfused": (("bias",), ("gelu",), ("accumulate", "normalize"), ("scale",)),
    "elementwise": (("bias", "gelu"), ("accumulate", "normalize"), ("scale",)),
    "epilogue": (("bias", "gelu"), ("accumulate", "normalize", "scale")),
    "accumulation": (("bias", "gelu", "accumulate"), ("normalize", "scale")),
    "everything": (("bias", "gelu", "accumulate", "normalize", "scale"),),
}

Slots = Mapping[str, tuple[int, int]]


def _source(variant: Variant, layout: np.dtype[Any], entry: str, **more: Any) -> KernelSource:
    full = {**variant.param_map, **more, "ARGS_CHECKS": args_checks(layout)}
    return KernelSource(variant.kernel.template, tuple(sorted(full.items())), entry)


def _rows_of(problem: Problem) -> tuple[int, int]:
    x = problem.inputs[0]
    assert x is not None
    return x.shape[0], x.shape[1]


def _dense(*shape: int) -> TensorSpec:
    return TensorSpec.dense("f32", shape)


@dataclass(frozen=True, slots=True)
class ReduceRule:
    """lab_reduce: rows over warps, blocks, clusters or the grid."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if is_empty(problem):
            return []
        layout, scope = row_layout(problem), variant.param("SCOPE")
        lanes = 32 if scope == "warp" else THREADS
        splits = {"cluster": CLUSTER, "grid": self._splits(problem, device)}.get(scope, 1)
        group = f"{lanes}, {CLUSTER}" if scope == "cluster" else str(lanes)
        rows = THREADS // lanes
        shared: dict[str, Any] = {}
        if scope == "grid":
            shared = {"workspace": layout.rows * splits * state_bytes(row_op_of(problem)),
                      "semaphores": layout.rows}
        return [row_record(
            problem, variant, row_access(problem).steps,
            {**self._access(problem), "lanes": lanes, "group": group, "min_blocks": MIN_BLOCKS},
            grid=(-(-layout.rows // rows) * splits, 1, 1), block=(THREADS, 1, 1),
            cluster=(CLUSTER if scope == "cluster" else 1, 1, 1), smem=SCRATCH + ALIGN_SLACK,
            splits=splits, **shared)]

    def _access(self, problem: Problem) -> dict[str, Any]:
        # Rows that start anywhere are read element by element: the consumer stays simple.
        found = row_context(problem)
        return {**found, "vector": 1 if found["shifted"] else found["vector"], "shifted": False}

    def _splits(self, problem: Problem, device: DeviceProfile) -> int:
        layout = row_layout(problem)
        wanted = -(-4 * device.sm_count // max(layout.rows, 1))
        return max(1, min(wanted, layout.n // 4096, 1024))

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [reduce_problem(name, 5, n) for name, n in
                (("sum", 1000), ("variance", 4096), ("logsumexp", 20000), ("argmax", 777))]


def reduce_problem(name: str, rows: int, n: int) -> Problem:
    """Return the LAB_REDUCE problem of a built-in row operator with one value per row."""
    op = build_row_op(name)
    kind = "i64" if name.startswith("arg") else "f32"
    base = row_problem(op, [_dense(rows, n)], [kind])
    return Problem("LAB_REDUCE", base.inputs, base.outputs, base.attrs)


@dataclass(frozen=True, slots=True)
class StreamRule:
    """lab_stream: a block per row."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        rows, n = _rows_of(problem)
        args, relocs = ArgsBuilder(STREAM_ARGS, {"n": n}, {
            "scores": (0, 0), "values": (1, 0), "y": (2, 0)}).pack()
        source = _source(variant, STREAM_ARGS, "lab_stream", min_blocks=MIN_BLOCKS)
        return [LaunchRecord(source, (rows, 1, 1), (THREADS, 1, 1), args, relocs,
                             BLOCK_SCRATCH + ALIGN_SLACK)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [stream_problem(3, 5000)]


def stream_problem(rows: int, n: int) -> Problem:
    """Return a LAB_STREAM problem."""
    return Problem("LAB_STREAM", (_dense(rows, n), _dense(rows, n)), (_dense(rows),))


@dataclass(frozen=True, slots=True)
class StageRule:
    """lab_stage: as many blocks as run at once walk over the tiles."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        weights = problem.inputs[1]
        assert weights is not None
        tiles, span = problem.outputs[0].size // WINDOW_TILE, WINDOW_TILE + WINDOW_SLACK
        args, relocs = ArgsBuilder(STAGE_ARGS, {"tiles": tiles, "taps": weights.size}, {
            "x": (0, 0), "w": (1, 0), "y": (2, 0)}).pack()
        threads = THREADS + headers_of(variant)["REALIZATION"].extra_threads
        source = _source(variant, STAGE_ARGS, "lab_stage", tile=WINDOW_TILE, span=span,
                         threads=threads, min_blocks=MIN_BLOCKS)
        stages: int = variant.param("STAGES")
        smem = stages * (span * 4 + 16) + ALIGN_SLACK
        per_sm = min(6, device.smem_per_sm // (smem + 1024))
        blocks = min(tiles, per_sm * device.sm_count)
        return [LaunchRecord(source, (blocks, 1, 1), (threads, 1, 1), args, relocs, smem)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [stage_problem(7 * WINDOW_TILE, 9)]


def stage_problem(n: int, taps: int) -> Problem:
    """Return a LAB_STAGE problem of n outputs; n is a multiple of WINDOW_TILE."""
    return Problem("LAB_STAGE", (_dense(n + WINDOW_SLACK), _dense(taps)), (_dense(n),))


@dataclass(frozen=True, slots=True)
class RematRule:
    """lab_remat: forward, then backward with what was kept."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        rows, n = _rows_of(problem)
        keep = variant.param("KEEP")
        slots: dict[str, tuple[int, int]] = {"x": (0, 0), "dy": (1, 0), "y": (2, 0), "dx": (3, 0)}
        kept = 0
        if keep != "nothing":
            slots["statistics"] = (WORKSPACE, 0)
            kept = rows * 8
        if keep == "values":
            slots["values"] = (WORKSPACE, kept)
            kept += rows * n * 4
        args, relocs = ArgsBuilder(REMAT_ARGS, {"n": n}, slots).pack()
        return [LaunchRecord(_source(variant, REMAT_ARGS, entry), (rows, 1, 1), (THREADS, 1, 1),
                             args, relocs, BLOCK_SCRATCH + ALIGN_SLACK, workspace=kept)
                for entry in variant.kernel.entries]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [remat_problem(3, 700)]


def remat_problem(rows: int, n: int) -> Problem:
    """Return a LAB_REMAT problem."""
    x = _dense(rows, n)
    return Problem("LAB_REMAT", (x, x), (x, x))


@dataclass(frozen=True, slots=True)
class FuseRule:
    """lab_fuse: the launches of FUSIONS; values between two launches lie in the workspace."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        rows, n = _rows_of(problem)
        plan = FUSIONS[variant.param("FUSE")]
        size = rows * n * 4
        between = size * min(len(plan) - 1, 2)
        records = []
        for turn, steps in enumerate(plan):
            last = turn == len(plan) - 1
            slots: Slots = {
                "from": (0, 0) if turn == 0 else (WORKSPACE, (turn - 1) % 2 * size),
                "to": (4, 0) if last else (WORKSPACE, turn % 2 * size),
                "bias": (1, 0), "scale": (2, 0), "residual": (3, 0),
                "inverse": (WORKSPACE, between)}
            args, relocs = ArgsBuilder(FUSE_ARGS, {"n": n}, slots).pack()
            records.append(LaunchRecord(
                _source(variant, FUSE_ARGS, "lab_fuse", steps=steps), (rows, 1, 1),
                (THREADS, 1, 1), args, relocs, BLOCK_SCRATCH + ALIGN_SLACK,
                workspace=between + rows * 4))
        return records

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [fuse_problem(3, 700)]


def fuse_problem(rows: int, n: int) -> Problem:
    """Return a LAB_FUSE problem."""
    x = _dense(rows, n)
    return Problem("LAB_FUSE", (x, _dense(n), _dense(n), x), (x,))


PRIMITIVE_RULES: dict[str, LaunchRule] = {
    "lab.reduce": ReduceRule(), "lab.stream": StreamRule(), "lab.stage": StageRule(),
    "lab.remat": RematRule(), "lab.fuse": FuseRule(),
}

__all__ = ["FUSIONS", "PRIMITIVE_RULES", "fuse_problem", "reduce_problem",
           "remat_problem", "stage_problem", "stream_problem"]
