"""Records of row kernels; launch rules of those that walk along rows: loops, splits, columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.ir.row import RowOp
from ..compiler.ir.row_ops import build_row_op
from ..compiler.ir.size import larger, smaller
from ..compiler.kernels.row_plans import (
    NEAR,
    WARP,
    column_vector,
    row_access,
    row_layout,
    row_op_of,
    row_splits,
)
from ..compiler.kernels.row_ring_plans import state_bytes
from ..compiler.kernels.walk import INT32_MAX
from ..errors import Unsupported
from ..problem import Problem, TensorSpec
from .elementwise import (
    axes_fields,
    axes_value,
    c_types,
    index_types,
    only_narrow,
    pointer_fields,
)
from .record import (
    SEMAPHORES,
    WORKSPACE,
    ArgsBuilder,
    KernelSource,
    LaunchRecord,
    args_checks,
    args_dtype,
)
from .row_render import render_row_op
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

_MODES = {1: "ge2::kUnit", 0: "ge2::kBroadcast", NEAR: "near"}
SMEM_OF_SM_90 = 232448  # the largest dynamic shared memory of a block
SECOND_OPERAND = -3  # a slot of row_record(product=...)
ALIGN_SLACK = 1024  # shared_memory() rounds its base up


@lru_cache(maxsize=1024)
def _args_layout(n_inputs: int, n_outputs: int, rank: int, product: bool = False
                 ) -> np.dtype[Any]:
    count = n_inputs + n_outputs
    return args_dtype(
        *pointer_fields(n_inputs, n_outputs), ("rows", "i8"), ("n", "i8"),
        ("lead", axes_fields(rank)), ("stride", "i8", (count, rank)), ("step", "i8", (count,)),
        ("zero", "u4", (4,)), ("workspace", "u8"), ("semaphores", "u8"), ("splits", "i8"),
        *((("b", "u8"), ("depth", "i8")) if product else ()))


@lru_cache(maxsize=1024)
def _checks(dtype: np.dtype[Any]) -> str:
    return args_checks(dtype)


@lru_cache(maxsize=4096)
def _index_types(problem: Problem) -> tuple[str, str]:
    layout = row_layout(problem)
    return index_types(layout.rows, layout.reach)


def row_record(problem: Problem, variant: Variant, steps: Sequence[int], context: dict[str, Any],
            *, entry: str = "", splits: int = 1, product: int = 0, **launch: Any) -> LaunchRecord:
    """Return a row kernel's record.

    Args:
        steps: per tensor the step along the axis that accesses are vectorised over.
        product: where x is no tensor but a product, its depth; its second operand has the slot
            SECOND_OPERAND.
    """
    layout, op = row_layout(problem), row_op_of(problem)
    n_in, n_out = op.n_inputs + op.n_extras, len(op.outputs)
    rank = len(layout.lead.shape)
    linear, offset = _index_types(problem)
    modes = tuple(_MODES.get(step, "ge2::kStrided") for step in steps)
    dtype = _args_layout(n_in, n_out, rank, bool(product))
    full = {
        **variant.param_map, **context, **render_row_op(op, fast=_is_fast(problem)),
        "rank": rank, "linear": linear, "offset": offset,
        "index": "unsigned" if layout.n <= INT32_MAX else "long long",
        "in_types": c_types(layout.tensors[:n_in]), "in_modes": modes[:n_in],
        "out_types": c_types(layout.tensors[n_in:]), "out_modes": modes[n_in:],
        "ARGS_CHECKS": _checks(dtype),
    }
    values = {
        "rows": layout.rows, "n": layout.n, "lead": axes_value(layout.lead.shape),
        "stride": layout.lead.strides, "step": layout.steps, "splits": splits,
    }
    slots = {name: (slot, 0) for slot, (name, _) in enumerate(pointer_fields(n_in, n_out))}
    if launch.get("workspace"):
        slots["workspace"] = (WORKSPACE, 0)
    if launch.get("semaphores"):
        slots["semaphores"] = (SEMAPHORES, 0)
    if product:
        values["depth"], slots["b"] = product, (SECOND_OPERAND, 0)
    args, relocs = ArgsBuilder(dtype, values, slots).pack()
    source = KernelSource(variant.kernel.template, tuple(sorted(full.items())),
                          entry or variant.kernel.name)
    if launch["grid"][0] > INT32_MAX:
        raise Unsupported("too many rows for one launch", found=layout.rows)
    return LaunchRecord(source, args=args, relocs=relocs, pdl="pdl" in variant.kernel.flags,
                        **launch)


def _is_fast(problem: Problem) -> bool:
    """Whether cheaper functions do: row outputs of 16 bits.

    A value per row beside them is made of sums whose large terms the cheaper functions get right to
    the last bits; alone it takes the exact ones.
    """
    kinds = row_op_of(problem).outputs
    rows = [t for t, kind in zip(problem.outputs, kinds, strict=True) if kind == "row"]
    return only_narrow(rows or problem.outputs)


def is_empty(problem: Problem) -> bool:
    """Return whether there is nothing to write."""
    return all(t.size == 0 for t in problem.outputs)


def row_context(problem: Problem) -> dict[str, Any]:
    """Return how kernels access memory along the row, as template constants."""
    access = row_access(problem)
    whole = not access.shifted and row_layout(problem).n % access.vector == 0
    return {"vector": access.vector, "shifted": access.shifted, "whole": whole}


@dataclass(frozen=True, slots=True)
class LoopRule:
    """row_loop: a block per row, any length, any strides."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if is_empty(problem):
            return []
        threads, steps = variant.param("THREADS"), row_access(problem).steps
        scratch = threads // WARP * 128
        context = {**row_context(problem), "scratch": scratch}
        return [row_record(problem, variant, steps, context,
                        grid=(row_layout(problem).rows, 1, 1), block=(threads, 1, 1),
                        smem=scratch + ALIGN_SLACK)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        softmax = build_row_op("softmax")
        strided = TensorSpec("f32", (3, 4, 50), (200, 1, -4), 4)
        return [*example_rows(5003), *example_rows(4096),
                row_problem(softmax, [strided], ["f32"])]


@dataclass(frozen=True, slots=True)
class SplitRule:
    """row_split: several blocks per row; row outputs take a second launch."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if is_empty(problem):
            return []
        layout, op = row_layout(problem), row_op_of(problem)
        threads = variant.param("THREADS")
        splits = row_splits(layout, device.sm_count, 2048 // threads)
        state = state_bytes(op)
        scratch = threads // WARP * 128 + 16
        context = {**row_context(problem), "scratch": scratch,
                   "state_bytes": state}
        launch: dict[str, Any] = {
            "grid": (layout.rows * splits, 1, 1), "block": (threads, 1, 1),
            "workspace": layout.rows * (splits + 1) * state,
        }
        # Putting weights together takes registers that this kernel has no room for.
        steps = tuple(2 if step == NEAR else step for step in row_access(problem).steps)
        records = [row_record(problem, variant, steps, context, splits=splits,
                           smem=scratch + ALIGN_SLACK, semaphores=layout.rows, **launch)]
        if op.reads_row_to_finish:
            records.append(row_record(problem, variant, steps, context, splits=splits,
                                   entry="row_split_finish", **launch))
        return records

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [*example_rows(100003), *example_rows(131072)]


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """row_column: threads along neighbouring rows."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if is_empty(problem):
            return []
        layout, op = row_layout(problem), row_op_of(problem)
        vector = column_vector(problem)
        if not vector:
            raise Unsupported("rows are not neighbours in memory", found=layout.lead.strides[0])
        across, down = variant.param("ACROSS"), variant.param("DOWN")
        inner = layout.lead.shape[-1]
        groups = layout.rows // inner * -(-inner // (across * vector))
        splits = 1
        if not op.reads_row_to_finish:
            # One wave of blocks: a few more would take as long again.
            wanted = device.sm_count * (1024 // (across * down)) // groups
            splits = larger(1, smaller(smaller(wanted, layout.n // (down * 16)), 1024))
        state = state_bytes(op)
        context = {"vector": vector, "whole": inner % vector == 0, "state_bytes": state}
        shared = {"workspace": groups * splits * across * vector * state,
                  "semaphores": groups} if splits > 1 else {}
        steps = [s[-1] for s in layout.lead.strides]
        return [row_record(problem, variant, steps, context, splits=splits,
                        grid=(groups * splits, 1, 1), block=(across * down, 1, 1),
                        smem=16 + across * down * vector * state + ALIGN_SLACK, **shared)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        def columns(dtype: str, b: int, n: int, inner: int) -> TensorSpec:
            return TensorSpec(dtype, (b, inner, n), (n * inner, 1, inner))

        per_row = TensorSpec("f32", (2, 36, 40), (0, 0, 1))
        return [
            row_problem(build_row_op("sum"), [columns("f32", 1, 3000, 64)], ["f32"]),
            row_problem(build_row_op("softmax"), [columns("bf16", 2, 40, 72)], ["bf16"],
                        strides=(72 * 40, 1, 72)),
            row_problem(build_row_op("argmax"), [columns("f16", 2, 40, 33)], ["i64"]),
            row_problem(build_row_op("layer_norm"),
                        [columns("f32", 2, 40, 36), per_row, per_row], ["f32"],
                        strides=(36 * 40, 1, 36)),
        ]


def row_problem(op: RowOp, inputs: Sequence[TensorSpec], out_dtypes: Sequence[str],
                strides: tuple[int, ...] = ()) -> Problem:
    """Return the ROW problem of op; outputs are dense, or row outputs have the given strides."""
    shape = inputs[0].shape
    outputs = []
    for dtype, kind in zip(out_dtypes, op.outputs, strict=True):
        if kind == "row" and strides:
            outputs.append(TensorSpec(dtype, shape, strides))
        else:
            outputs.append(TensorSpec.dense(dtype, shape if kind == "row" else shape[:-1]))
    return Problem("ROW", tuple(inputs), tuple(outputs), (("row", op),))


def example_rows(n: int, rows: int = 5) -> list[Problem]:
    """Return row problems of length n that cover states, operands and dtypes."""
    def x(dtype: str) -> TensorSpec:
        return TensorSpec.dense(dtype, (rows, n))

    weight = TensorSpec("f32", (rows, n), (0, 1))
    wide = TensorSpec.dense("f64", (rows, n))
    return [
        row_problem(build_row_op("softmax"), [x("bf16")], ["bf16"]),
        row_problem(build_row_op("softmax"), [x("f32")], ["f32"]),
        row_problem(build_row_op("layer_norm"), [x("f16"), weight, weight], ["f16"]),
        row_problem(build_row_op("sum"), [x("f32")], ["f32"]),
        row_problem(build_row_op("argmax"), [x("f32")], ["i64"]),
        row_problem(build_row_op("sum", "i64"), [x("i64")], ["i64"]),
        row_problem(build_row_op("max", "f64"), [wide], ["f64"]),
        row_problem(build_row_op("add_rms_norm", rounding="bf16"),
                    [x("bf16"), x("bf16"), weight], ["bf16", "bf16"]),
    ]


RULES: dict[str, LaunchRule] = {
    "row.loop": LoopRule(),
    "row.split": SplitRule(),
    "row.column": ColumnRule(),
}

