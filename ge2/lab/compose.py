"""Kernels that nobody wrote: a staging, a reduction and an epilogue composed from a declaration.

The declaration is a row operator: how a state starts, takes in an element, merges and finishes. Its
rows lie in memory, or they are the rows of a product A Bᵀ that is never stored. Which realizations
it is composed of is chosen, or follows from what is known of them on a device.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compiler.ir.expr import ExprBundle
from ..compiler.ir.row import RowOp
from ..compiler.kernels import source
from ..contract import dtype_name
from ..errors import Invalid, NoKernelError, near_matches
from ..evidence.costmodel import raw_time
from ..evidence.device import DeviceProfile, profile_for
from ..evidence.record import Record
from ..launch.lab_compose import compose_product_problem, compose_rows_problem
from ..problem import Problem, TensorSpec
from ..runtime.device import Device, EmulatedDevice
from ..runtime.problem_reference import reference
from ..tune.operands import allocate, fill, read
from . import costs, plans
from .realizations import Realization
from .verify import offered

# Where nothing is measured: what the row kernels of models do.
_STAGING, _REDUCTION = "cp_async", {False: "block", True: "warp_shuffle"}

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Composition:
    """A declaration with the realizations that it is composed of.

    Attributes:
        row: the declaration.
        product: whether its first x are rows of A Bᵀ.
        prologue: what A's elements pass through, None for nothing.
        staging, reduction: names of headers; "" where evidence decides.
    """

    row: RowOp
    product: bool = False
    prologue: ExprBundle | None = None
    staging: str = ""
    reduction: str = ""

    def problem(self, *shapes: Shape, dtype: str = "f32") -> Problem:
        """Return the problem for dense operands of these shapes.

        Args:
            shapes: x [rows, n], or A [rows, k] and B [n, k]; further operands as they broadcast to
                [rows, n], each a row [n] where they are left out.
            dtype: of all operands: f32, of a product f16 and bf16, too.
        """
        lead = 2 if self.product else 1
        if len(shapes) < lead or any(len(shape) != 2 for shape in shapes[:lead]):
            raise Invalid(f"{self.row.name} is composed over matrices", argument="shapes",
                          found=shapes, wanted="A, B and the rest" if self.product
                          else "x and the rest")
        if self.product:
            (m, k), (n, _) = shapes[:2]
            base = compose_product_problem(self.row, m, n, k, self.prologue, dtype)
        else:
            base = compose_rows_problem(self.row, *shapes[0])
        if len(shapes) > len(base.inputs):
            raise Invalid(f"{self.row.name} takes fewer operands", argument="shapes",
                          found=len(shapes), wanted=len(base.inputs))
        given = tuple(TensorSpec.dense(dtype, shape) for shape in shapes)
        return Problem(base.op_type, (*given, *base.inputs[len(given):]), base.outputs, base.attrs)

    def candidates(self, records: Iterable[Record] = (), arch: str = "") -> list[Realization]:
        """Return what it can be composed of; what a record says to be wrong is left out."""
        kernel = "lab_compose_product" if self.product else "lab_compose_rows"
        found = [one for one in offered("composition", records, arch) if one.consumer == kernel]
        for param, wanted in (("STAGING", self.staging), ("REDUCTION", self.reduction)):
            known = {str(one.variant.param_map[param]) for one in found}
            if wanted and wanted not in known:
                raise NoKernelError(
                    f"{self.row.name} cannot be composed so", argument=param.lower(), found=wanted,
                    wanted=", ".join(sorted(known)), hint=near_matches(wanted, known))
            found = [one for one in found if wanted in ("", one.variant.param_map[param])]
        return found

    def ranked(self, problem: Problem, device: DeviceProfile,
               records: Iterable[Record] = ()) -> list[tuple[Realization, float]]:
        """Return the candidates with their predicted microseconds, the least first.

        Args:
            records: evidence of the composed kernels, whatever they were composed for.

        Raises:
            NoKernelError: there is none.
        """
        records = list(records)
        factors = _factors(records)
        unknown = max(factors.values(), default=1.0)  # what nobody has measured is no favourite
        found = [(one, raw_time(costs.axes(problem, one, device), device)
                  * factors.get(one.variant.id, unknown))
                 for one in self.candidates(records, device.arch)]
        usual = f"{_STAGING}/{_REDUCTION[self.product]}"
        return sorted(found, key=lambda pair: (pair[1], pair[0].name != usual))

    def choose(self, problem: Problem, device: DeviceProfile,
               records: Iterable[Record] = ()) -> Realization:
        """Return the candidate with the least predicted time; arguments as for ranked()."""
        return self.ranked(problem, device, records)[0][0]

    def source(self, *shapes: Shape, device: DeviceProfile | None = None,
               records: Iterable[Record] = ()) -> str:
        """Return the CUDA text that is compiled for operands of these shapes."""
        device, problem = device or profile_for("sm_90a"), self.problem(*shapes)
        one = self.choose(problem, device, records)
        return source.render(plans.bind(problem, one.variant, device)[0].kernel)

    def run(self, *arrays: Array, device: Device | None = None,
            records: Iterable[Record] = ()) -> list[Array]:
        """Return the outputs for arrays of one dtype; without a device on the emulator.

        Raises:
            Ge2Error: the operands do not fit, or the kernel failed.
        """
        device = device or EmulatedDevice()
        problem = self._checked(arrays)
        one = self.choose(problem, device.profile, records)
        return _run(device, problem, one, arrays)

    def reference(self, *arrays: Array) -> list[Array]:
        """Return the outputs in float64, by NumPy."""
        return reference(self._checked(arrays), arrays)

    def _checked(self, arrays: Sequence[Array]) -> Problem:
        kinds = ("f32", "f16", "bf16") if self.product else ("f32",)
        dtype = dtype_name(arrays[0].dtype) if arrays else "f32"
        for index, array in enumerate(arrays):
            if dtype_name(array.dtype) != dtype or dtype not in kinds:
                raise Invalid(f"{self.row.name} is composed of kernels for operands of one dtype",
                              argument=f"operand {index}", found=array.dtype,
                              wanted=" or ".join(kinds))
        return self.problem(*(array.shape for array in arrays), dtype=dtype)


def compose(declaration: RowOp | Any, *, product: bool = False, prologue: ExprBundle | None = None,
            staging: str = "", reduction: str = "") -> Composition:
    """Compose a kernel from a declaration.

    Args:
        declaration: a RowOp, or what ge2.row_operator made of a class.
        product: its first x are the rows of A Bᵀ, for A [rows, k] and B [n, k].
        prologue: one expression over an element of A.
        staging, reduction: realizations by name; where left out, the one with the least predicted
            time on the device at hand.

    Raises:
        Invalid: the declaration is none, or a product's row would have to be seen as a whole.
    """
    from ..compiler.opdefs.user_rows import USER_ROWS

    row = declaration
    if not isinstance(row, RowOp):
        name = getattr(declaration, "name", "")
        if name not in USER_ROWS:
            raise Invalid("nothing to compose", argument="declaration", found=repr(declaration),
                          wanted="a RowOp or an operator declared with ge2.row_operator")
        row = USER_ROWS[name]("f32")
    if not row.streamable or (product and row.pivot):
        raise Invalid(f"{row.name} cannot be folded tile by tile", argument="declaration",
                      wanted="a row operator with a merge; over a product one that reads no first "
                             "element")
    if prologue is not None and not product:
        raise Invalid("only a product has a prologue", argument="prologue")
    return Composition(row, product, prologue, staging, reduction)


def _factors(records: Iterable[Record]) -> dict[str, float]:
    """Return measured over predicted time by variant: what the cost axes cannot know."""
    ratios: dict[str, list[float]] = {}
    for record in records:
        if record.time_us > 0 and record.predicted_us > 0:
            ratios.setdefault(record.variant, []).append(record.time_us / record.predicted_us)
    return {name: statistics.median(values) for name, values in ratios.items()}


def _run(device: Device, problem: Problem, one: Realization, arrays: Sequence[Array]
         ) -> list[Array]:
    with device.active():
        tensors = [allocate(device, spec) for spec in problem.tensors if spec is not None]
        for tensor, array in zip(tensors, _filled(arrays, len(tensors)), strict=True):
            fill(device, tensor, array)
        for unit in device.prepare(plans.bind(problem, one.variant, device.profile)):
            unit.args.patch([tensor.address for tensor in tensors], 0, 0)
            unit(0)
        device.synchronize(0)
        outputs = tensors[len(problem.inputs):]
        return [tensor.view(read(device, tensor)).copy() for tensor in outputs]


def _filled(arrays: Sequence[Array], count: int) -> Iterator[Array | None]:
    yield from arrays
    yield from [None] * (count - len(arrays))


__all__ = ["Composition", "compose"]
