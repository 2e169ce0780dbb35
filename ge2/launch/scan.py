"""Launch rules of running sums and products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.ir.scalar_ops import C_TYPES
from ..compiler.kernels.walk import INT32_MAX, VECTOR_BYTES, Walk, collapse
from ..contract import DTYPES
from ..errors import Unsupported
from ..problem import Problem, TensorSpec
from .elementwise import axes_fields, axes_value, index_types
from .record import ArgsBuilder, KernelSource, LaunchRecord, args_checks, args_dtype
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

_ALIGN_SLACK = 1024  # shared_memory() rounds its base up


@lru_cache(maxsize=64)
def _layout(rank: int) -> tuple[np.dtype[Any], str]:
    dtype = args_dtype(("x", "u8"), ("y", "u8"), ("rows", "i8"), ("n", "i8"),
                       ("lead", axes_fields(rank)), ("stride", "i8", (2, rank)),
                       ("step", "i8", (2,)))
    return dtype, args_checks(dtype)


@dataclass(frozen=True, slots=True)
class ScanLayout:
    """A SCAN problem: the axes that rows are counted over, steps and length of a row."""

    lead: Walk
    steps: tuple[int, int]
    n: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return prod(self.lead.shape)


def scan_layout(problem: Problem) -> ScanLayout:
    """Return the layout of a SCAN problem: x and y [*rows, n]."""
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    lead = collapse(x.shape[:-1], (x.strides[:-1], y.strides[:-1]))
    return ScanLayout(lead, (x.strides[-1], y.strides[-1]), x.shape[-1])


def _record(problem: Problem, variant: Variant, context: dict[str, Any], layout: ScanLayout,
            **launch: Any) -> LaunchRecord:
    x, attrs = problem.inputs[0], problem.attr_map
    assert x is not None
    reach = layout.lead.reach + max(map(abs, layout.steps)) * layout.n
    linear, offset = index_types(layout.rows, reach)
    rank = len(layout.lead.shape)
    dtype, checks = _layout(rank)
    full = {
        **variant.param_map, **context, "rank": rank, "linear": linear, "offset": offset,
        "type": DTYPES[x.dtype].c_type, "compute": C_TYPES[DTYPES[x.dtype].compute],
        "combine": attrs["combine"], "exclusive": attrs["exclusive"], "reverse": attrs["reverse"],
        "ARGS_CHECKS": checks,
    }
    values = {"rows": layout.rows, "n": layout.n, "lead": axes_value(layout.lead.shape),
              "stride": layout.lead.strides, "step": layout.steps}
    args, relocs = ArgsBuilder(dtype, values, {"x": (0, 0), "y": (1, 0)}).pack()
    source = KernelSource(variant.kernel.template, tuple(sorted(full.items())),
                          variant.kernel.name)
    if launch["grid"][0] > INT32_MAX:
        raise Unsupported("too many rows for one launch", found=layout.rows)
    return LaunchRecord(source, args=args, relocs=relocs, **launch)


@dataclass(frozen=True, slots=True)
class RowRule:
    """row_scan: a block per row."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if problem.outputs[0].size == 0:
            return []
        layout, threads = scan_layout(problem), variant.param("THREADS")
        vector, modes = _access(problem, layout)
        context = {"vector": vector, "modes": modes}
        compute = DTYPES[DTYPES[problem.outputs[0].dtype].compute].itemsize
        smem = threads // 32 * compute + _ALIGN_SLACK if threads > 32 else 0
        return [_record(problem, variant, context, layout, grid=(layout.rows, 1, 1),
                        block=(threads, 1, 1), smem=smem)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        n = 10 * int(variant.param("THREADS")) + 3
        return [scan_problem("f32", (3, n)), scan_problem("bf16", (3, n - 3), exclusive=True),
                scan_problem("f16", (3, n), reverse=True), scan_problem("i64", (2, 2, n)),
                scan_problem("f64", (2, n - 3), reverse=True, exclusive=True),
                scan_problem("i32", (4, 40), combine="prod")]


def _access(problem: Problem, layout: ScanLayout) -> tuple[int, tuple[str, str]]:
    """Return elements per access and how x and y are accessed."""
    tensors = (problem.inputs[0], problem.outputs[0])
    size = DTYPES[problem.outputs[0].dtype].itemsize
    vector = VECTOR_BYTES // size
    whole = not problem.attr_map["reverse"] or layout.n % vector == 0
    modes = []
    for number, tensor in enumerate(tensors):
        assert tensor is not None
        aligned = (tensor.align % VECTOR_BYTES == 0 and layout.steps[number] == 1 and whole
                   and all(s % vector == 0 for s in layout.lead.strides[number]))
        modes.append("ge2::kUnit" if aligned else "ge2::kStrided")
    return vector, (modes[0], modes[1])


@dataclass(frozen=True, slots=True)
class AcrossRule:
    """row_scan_across: a thread per row."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if problem.outputs[0].size == 0:
            return []
        layout, threads = scan_layout(problem), variant.param("THREADS")
        return [_record(problem, variant, {}, layout, grid=(-(-layout.rows // threads), 1, 1),
                        block=(threads, 1, 1))]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [scan_problem("f32", (2, 200, 37), across=True),
                scan_problem("bf16", (300, 9), across=True, exclusive=True, reverse=True),
                scan_problem("i64", (2, 130, 8), across=True, combine="prod")]


def scan_problem(dtype: str, shape: tuple[int, ...], *, combine: str = "sum",
                 exclusive: bool = False, reverse: bool = False, across: bool = False) -> Problem:
    """Return the SCAN problem of a dense tensor; across: its rows are neighbours in memory."""
    spec = TensorSpec.dense(dtype, shape)
    if across:
        lead, n = shape[-2], shape[-1]
        strides = (*(s for s in spec.strides[:-2]), 1, lead)
        spec = TensorSpec(dtype, shape, strides)
        assert spec.size == prod(shape[:-2]) * lead * n
    attrs = {"combine": combine, "exclusive": exclusive, "reverse": reverse}
    return Problem("SCAN", (spec,), (spec,), tuple(sorted(attrs.items())))


RULES: dict[str, LaunchRule] = {"scan.row": RowRule(), "scan.across": AcrossRule()}
