"""Launch rules of composed kernels: a staging, a mergeable state and an epilogue from declarations.

The declaration is a row operator. Its rows lie in memory, or they are rows of a product that is
never stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..compiler.ir.expr import ExprBundle, exp, input, maximum, render_c
from ..compiler.ir.row import RowOp, row_op
from ..compiler.ir.row_ops import build_row_op
from ..compiler.kernels.headers import headers_of
from ..compiler.kernels.row_plans import row_access, row_layout, row_op_of
from ..contract import DTYPES
from ..errors import Unsupported
from ..problem import Problem, TensorSpec
from .elementwise import c_types
from .record import LaunchRecord, Reloc
from .row import ALIGN_SLACK, SECOND_OPERAND, is_empty, row_problem, row_record
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

THREADS = 128
TILE = 1024  # elements of a row that are staged at once
# Of a product: rows of A by what multiplies, rows of B, words of their depth.
BM, BN, BK = {"simt": 64, "mma": 128}, 64, 16
WORD = 4
SCRATCH = 2 * THREADS * 64  # what a reduction may use
BAR_BYTES = 16  # per stage


def _block(variant: Variant) -> int:
    """Return the threads of a block: a producer is a group as large as the consumers, so that the
    barriers of the reduction see whole groups."""
    extra = headers_of(variant)["STAGING"].extra_threads
    return THREADS * (1 + -(-extra // THREADS))


def _memory(variant: Variant, rows: int, span: int) -> dict[str, int]:
    """Return where ring, barriers and scratch lie, as template constants."""
    pitch = span if rows == 1 else span + 4
    ring = int(variant.param("STAGES")) * rows * pitch * 4
    bars = int(variant.param("STAGES")) * BAR_BYTES
    # One set of barriers for each walk over the tiles.
    return {"bars": ring, "scratch": ring + 2 * bars, "bar_bytes": bars}


def _smem(memory: dict[str, int]) -> int:
    return memory["scratch"] + SCRATCH + ALIGN_SLACK


@dataclass(frozen=True, slots=True)
class ComposeRowsRule:
    """lab_compose_rows: a block per row, whose operands are staged tile by tile."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if is_empty(problem):
            return []
        op, layout, steps = row_op_of(problem), row_layout(problem), row_access(problem).steps
        if any(step != 1 for step in layout.steps[:op.n_inputs]):
            raise Unsupported("operands that the state is filled from lie along the row",
                              found=layout.steps)
        memory = _memory(variant, op.n_inputs, TILE)
        threads = _block(variant)
        context = {**memory, "tile": TILE, "threads": threads, "consumers": THREADS}
        return [row_record(problem, variant, steps, context, grid=(layout.rows, 1, 1),
                           block=(threads, 1, 1), smem=_smem(memory))]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [compose_rows_problem(build_row_op("softmax_grad"), 3, 1500),
                compose_rows_problem(build_row_op("variance"), 3, 2052)]


def compose_rows_problem(op: RowOp, rows: int, n: int) -> Problem:
    """Return the problem of a row operator on dense f32 rows; extras are one row for all."""
    given = [TensorSpec.dense("f32", (rows, n))] * op.n_inputs
    given += [TensorSpec.dense("f32", (n,))] * op.n_extras
    base = row_problem(op, given, [e.dtype for e in op.finish])
    return Problem("LAB_COMPOSE_ROWS", base.inputs, base.outputs, base.attrs)


@dataclass(frozen=True, slots=True)
class ComposeProductRule:
    """lab_compose_product: a block per BM rows of A Bᵀ, which walks over its columns."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if is_empty(problem):
            return []
        a, b = problem.inputs[:2]
        assert a is not None and b is not None
        inner = product_rows(problem)
        op, prologue = row_op_of(inner), problem.attr_map.get("prologue")
        if op.pivot or not op.streamable:
            raise Unsupported("a product's row is seen once and in parts", found=op.name,
                              wanted="a row operator with a merge that reads no first element")
        size = DTYPES[a.dtype].itemsize
        if a.shape[1] * size % 16:
            raise Unsupported("rows of A and B are copied in pieces of 16 bytes", argument="K",
                              found=a.shape[1], wanted=f"a multiple of {16 // size}")
        units = "simt" if a.dtype == "f32" else "mma"
        bm, kind = BM[units], c_types([a])[0]
        memory = _memory(variant, bm + BN, BK)
        threads = _block(variant)
        context = {
            **memory, "product": True, "bm": bm, "bn": BN, "bk": BK, "units": units,
            "multiplier": ("ProductSimt<" if units == "simt" else f"ProductMma<{kind}, ")
            + "kConsumers, BM, BN>",
            "threads": threads, "consumers": THREADS, "prologue": _prologue(prologue)}
        # Where no state joins the columns of a row, each tile of them may have a block.
        splits = 1 if op.state else -(-b.shape[0] // BN)
        record = row_record(inner, variant, row_layout(inner).steps, context,
                            product=a.shape[1] * size // WORD,
                            grid=(-(-a.shape[0] // bm) * splits, 1, 1),
                            block=(threads, 1, 1), smem=_smem(memory), splits=splits)
        return [replace(record, relocs=tuple(_behind_b(r) for r in record.relocs))]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        found = [compose_product_problem(build_row_op("logsumexp"), 66, 72, 20),
                 compose_product_problem(_SCALED, 66, 72, 20, ExprBundle((_RELU,)))]
        if variant.param("REDUCTION") == "warp_shuffle":  # what multiplies is no matter of it
            found.append(compose_product_problem(build_row_op("logsumexp"), 130, 72, 40,
                                                 ExprBundle((_RELU,)), dtype="f16"))
        return found


def product_rows(problem: Problem) -> Problem:
    """Return the row problem of a product's rows, as if the product were stored."""
    a, b = problem.inputs[:2]
    assert a is not None and b is not None
    product = TensorSpec.dense("f32", (a.shape[0], b.shape[0]))
    return Problem("ROW", (product, *problem.inputs[2:]), problem.outputs,
                   (("row", problem.attr_map["row"]),))


def _prologue(bundle: object) -> tuple[tuple[str, ...], str] | None:
    """Return the statements and the result of what A's elements pass through, None for nothing."""
    if not isinstance(bundle, ExprBundle):
        return None
    text = render_c(bundle.outputs, ["a"])
    return text.lines, text.results[0]


def _behind_b(reloc: Reloc) -> Reloc:
    """Return a hole of the row problem for the product's slots: B stands between A and the rest."""
    if reloc.slot == SECOND_OPERAND:
        return replace(reloc, slot=1)
    return replace(reloc, slot=reloc.slot + 1) if reloc.slot > 0 else reloc


def compose_product_problem(op: RowOp, m: int, n: int, k: int,
                            prologue: ExprBundle | None = None, dtype: str = "f32") -> Problem:
    """Return the problem of a row operator on the rows of A [m, k] times B [n, k] transposed.

    Further operands and extras of the operator are one row of n for all.

    Args:
        dtype: of all operands; of 16 bits, values per element are of that type, too.
    """
    given = [TensorSpec.dense(dtype, (m, k)), TensorSpec.dense(dtype, (n, k))]
    given += [TensorSpec.dense(dtype, (n,))] * (op.n_inputs - 1 + op.n_extras)
    outputs = tuple(
        TensorSpec.dense(dtype if kind == "row" and dtype != "f32" else e.dtype,
                         (m, n) if kind == "row" else (m,))
        for e, kind in zip(op.finish, op.outputs, strict=True))
    return Problem("LAB_COMPOSE_PRODUCT", tuple(given), outputs,
                   (("row", op), ("prologue", prologue)))


_RELU = maximum(input(0, "f32"), 0.0)
_SCALED = row_op(
    "scaled_softmax", state={"m": -1e30, "s": 0.0}, extras=1,
    single=lambda r: (r.x, r.x * 0.0 + 1.0),
    merge=lambda a, b: (maximum(a.m, b.m),
                        a.s * exp(a.m - maximum(a.m, b.m)) + b.s * exp(b.m - maximum(a.m, b.m))),
    finish=lambda s, r: exp(r.x - s.m) / s.s * r.extras[0])

COMPOSE_RULES: dict[str, LaunchRule] = {
    "lab.compose_rows": ComposeRowsRule(), "lab.compose_product": ComposeProductRule(),
}
