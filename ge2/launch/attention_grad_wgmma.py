"""Launch rule of attention's gradients by wgmma: tiles by tensor map, 128 own rows of a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..compiler.opdefs.attention_grad import GRADIENT
from ..errors import Unsupported
from ..problem import Problem
from .attention_args import HEADS_DTYPE, Field
from .attention_grad import GradientCall, gradient_call, gradient_problem
from .attention_wgmma import (
    SHARED_BYTES,
    STORE_ROWS,
    box_columns,
    columns_of,
    head_map,
    tma_refusal,
)
from .gemm_source import ALIGNMENT_SLACK
from .record import WORKSPACE, KernelSource, LaunchRecord, TensorMapSpec
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

OWN = 128  # rows of a block
THREADS = 384
STAGES = 4  # more would wait for nothing
MOST_COLUMNS = 128  # of a head, with which the sums of 64 rows fit in registers
MAPS = ("own_k", "own_v", "streamed_q", "streamed_d", "grad_k", "grad_v",
        "own_q", "own_d", "streamed_k", "streamed_v", "grad_q")
FIELDS: tuple[Field, ...] = (
    ("ge2::HeadTensor", "grad_y", HEADS_DTYPE), ("void*", "statistics", "u8"),
    ("int", "statistics_rows", "i4"), ("unsigned", "key_blocks", "u4"))
# Queries that stream past keys, by the columns of a head: sums, weights and slopes share registers.
QUERIES = {32: (96, 112), 64: (96, 112), 80: (64, 80), 96: (64, 80), 128: (64, 80)}


@dataclass(frozen=True, slots=True)
class WgmmaGradientRule:
    """Two launches: statistics by queries; blocks that own keys, and blocks that own queries."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launches; see LaunchRule."""
        if not any(spec.size for spec in problem.outputs):
            return []
        call = gradient_call(problem)
        if refusal := wgmma_gradient_refusal(variant, call):
            raise Unsupported(refusal, argument=variant.id, found=problem)
        x, columns = call.forward, columns_of(call.forward)
        queries, keys = int(variant.param("QUERIES")), int(variant.param("KEYS"))
        rows = -(-x.queries // queries) * queries
        heads, key_blocks = x.heads * x.batch, -(-x.keys // OWN) * x.groups * x.batch
        grad_y = {"batch": call.grad_y.batch, "head": call.grad_y.head, "row": call.grad_y.row}
        args, relocs = x.pack(
            MAPS, FIELDS,
            {"grad_y": grad_y, "statistics_rows": rows, "key_blocks": key_blocks},
            {"grad_y": (GRADIENT, 0), "statistics": (WORKSPACE, 0)})
        classes = {"COLUMNS": columns, "WIDE": 4,
                   "QUERY_STAGES": stages_of(columns, queries, 8),
                   "KEY_STAGES": stages_of(columns, keys, 0)}
        source = x.source(variant, classes, MAPS, FIELDS)
        smem = max(shared_bytes(columns, queries, 8), shared_bytes(columns, keys, 0))
        launches = ((-(-heads * rows // (THREADS // 32)), 0, ()),
                    (key_blocks + -(-x.queries // OWN) * heads, smem,
                     tensor_maps(call, queries, keys)))
        return [LaunchRecord(KernelSource(source.template, source.context, entry), (grid, 1, 1),
                             (THREADS, 1, 1), args, relocs, smem=needed, tensor_maps=maps,
                             workspace=call.statistics_bytes(rows))
                for entry, (grid, needed, maps) in zip(variant.kernel.entries, launches,
                                                       strict=True)]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        found = []
        for dtype in ("f16", "bf16"):
            found += [gradient_problem(dtype, (1, 4, 70, 128), groups=2, keys=90, causal=True),
                      gradient_problem(dtype, (2, 2, 200, 64), left=30, offset=20),
                      gradient_problem(dtype, (1, 1, 130, 80), value=96, keys=200)]
        return [p for p in found if not wgmma_gradient_refusal(variant, gradient_call(p))]


def _tile_bytes(rows: int, columns: int) -> int:
    box = box_columns(columns)
    return -(-columns // box) * box * rows * 2


def _stage_bytes(columns: int, rows: int, statistics: int) -> int:
    return 2 * _tile_bytes(rows, columns) + rows * statistics + 2 * 8


def _fixed_bytes(columns: int) -> int:
    return 2 * _tile_bytes(OWN, columns) + 8 + ALIGNMENT_SLACK


def stages_of(columns: int, rows: int, statistics: int) -> int:
    """Return how many stages of so many rows fit, with so many bytes of statistics for a row."""
    stage = _stage_bytes(columns, rows, statistics)
    return min(STAGES, (SHARED_BYTES - _fixed_bytes(columns)) // stage)


def shared_bytes(columns: int, rows: int, statistics: int) -> int:
    """Return the shared memory of a block past which so many rows stream at a time."""
    stages = stages_of(columns, rows, statistics)
    return _fixed_bytes(columns) + stages * _stage_bytes(columns, rows, statistics)


def tensor_maps(call: GradientCall, queries: int, keys: int) -> tuple[TensorMapSpec, ...]:
    """Return MAPS: tiles of own rows, of rows that stream past, and of what a warp stores."""
    x, d, (dq, dk, dv) = call.forward, call.grad_y, call.results
    size, value = x.size, x.value_size
    of_keys, of_queries = (x.keys, x.groups), (x.queries, x.heads)
    maps = ((x.k, of_keys, size, OWN), (x.v, of_keys, value, OWN),
            (x.q, of_queries, size, queries), (d, of_queries, value, queries),
            (dk, of_keys, size, STORE_ROWS), (dv, of_keys, value, STORE_ROWS),
            (x.q, of_queries, size, OWN), (d, of_queries, value, OWN),
            (x.k, of_keys, size, keys), (x.v, of_keys, value, keys),
            (dq, of_queries, size, STORE_ROWS))
    return tuple(head_map(index, x, tensor, rows, columns, heads, tile)
                 for index, (tensor, (rows, heads), columns, tile) in enumerate(maps))


def wgmma_gradient_refusal(variant: Variant, call: GradientCall) -> str:
    """Return why a variant cannot serve a call; empty where it can."""
    x = call.forward
    columns = columns_of(x)
    if not 0 < columns <= MOST_COLUMNS:
        return f"heads have more than {MOST_COLUMNS} elements"
    if variant.param("QUERIES") not in QUERIES[columns]:
        return f"heads of {columns} take {QUERIES[columns]} queries at a time"
    if not x.is_plain or x.kv_len:
        return "scores are products, over all keys or a band of them"
    if x.size % 8:
        return "tensor maps store whole units of 16 bytes, and a row of grad_q ends inside one"
    return tma_refusal(x) or _results_refusal(call)


def _results_refusal(call: GradientCall) -> str:
    x, (dq, dk, dv) = call.forward, call.results
    for name, heads, n_heads, rows in (
            ("grad_y", call.grad_y, x.heads, x.queries), ("grad_q", dq, x.heads, x.queries),
            ("grad_k", dk, x.groups, x.keys), ("grad_v", dv, x.groups, x.keys)):
        steps = ((heads.batch, x.batch), (heads.head, n_heads), (heads.row, rows))
        if heads.align % 16 or any(n != 1 and (s % 8 or s <= 0) for s, n in steps):
            return f"{name} is not aligned to 16 bytes in every row"
    return ""


GRADIENT_WGMMA_RULES: dict[str, LaunchRule] = {"attention.grad_wgmma": WgmmaGradientRule()}
