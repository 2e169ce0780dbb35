"""A GEMM_BIAS_ACT problem in the form its kernels take it in: strides by role, few batch axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..compiler.ir.expr import ExprBundle, render_c
from ..compiler.kernels.product_axes import product_axes
from ..compiler.opdefs.gemm_epilogue import EPILOGUE_SCALARS
from ..contract import DTYPES
from ..errors import Invalid, Unsupported
from ..problem import Problem, TensorSpec
from .gemm_args import (
    MAP_WORDS,
    MAX_BATCH_AXES,
    Operand,
    Values,
    append_operands,
    double_words,
    plain_args_dtype,
    tensor_map_args_dtype,
)
from .record import SEMAPHORES, WORKSPACE, Reloc, args_checks, pack_words

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant

MAX_GRID_Z = 65535


@dataclass(frozen=True, slots=True)
class GemmCall:
    """One batched product with its epilogue, ready to be packed.

    Attributes:
        m, n, k: extents after folding a batch axis into m where B does not vary along it.
        batch: extents of the collapsed batch axes, always MAX_BATCH_AXES of them.
        a, b, y: the matrices.
        more: further outputs, each with a result of the epilogue.
        extras: epilogue inputs that the expression reads, in order, with their C++ names.
        epilogue: the expression; its input i + 1 is buffer i + 2.
        scalars: the values of its run-time scalars, alpha and beta.
        rows: what is said of each row of y, in row_value; "none" where nothing is.
    """

    m: int
    n: int
    k: int
    batch: Values
    a: Operand
    b: Operand
    y: Operand
    extras: tuple[tuple[str, Operand], ...]
    epilogue: ExprBundle
    more: tuple[Operand, ...] = ()
    scalars: tuple[float, float] = (1.0, 1.0)
    rows: str = "none"
    row_value: Operand | None = None

    @property
    def batches(self) -> int:
        """Number of matrices."""
        return self.batch[0] * self.batch[1] * self.batch[2]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute."""
        return self.m == 0 or self.n == 0 or self.batches == 0

    def pack_tensor_maps(self, sources: Sequence[Operand] = (), tail: tuple[int, int] = (0, 1)
                         ) -> tuple[bytes, tuple[Reloc, ...]]:
        """Return the Args bytes of a kernel that reads A and B and writes Y by tensor map.

        Args:
            sources: operands that stand before the extras.
            tail: output tiles that are not split along K, and parts of each of the others.
        """
        words = [0] * (MAP_WORDS * (3 + len(self.more)))
        words += (self.m, self.n, self.k, self.batches, *self.batch,
                  *double_words(*self.scalars), int(self.a.batch[2] != 0),
                  int(self.b.batch[2] != 0), *tail, 0, 0)
        scratch = (Reloc(8 * len(words) - 16, WORKSPACE), Reloc(8 * len(words) - 8, SEMAPHORES))
        relocs = append_operands(words, [*sources, *(operand for _, operand in self.extras)])
        words += [0] * (-len(words) % 8)
        return pack_words(words), (*scratch, *relocs) if tail[1] > 1 else relocs

    def pack(self, more: Sequence[Operand] = (), numbers: Sequence[int | float] = (),
             maps: int = 0) -> tuple[bytes, tuple[Reloc, ...]]:
        """Return the Args bytes that every plain GEMM kernel has, and its holes.

        Args:
            more: further operands of a kernel.
            numbers: and numbers, of 8 bytes each.
            maps: tensor maps before everything; then the size is a multiple of 64.
        """
        words = [0] * (MAP_WORDS * maps)
        words += [self.m, self.n, self.k, self.batches, *self.batch, *double_words(*self.scalars)]
        relocs = append_operands(words, [*self.operands, *more])
        for number in numbers:
            words += double_words(number) if isinstance(number, float) else (number,)
        if maps:
            words += [0] * (-len(words) % 8)
        return pack_words(words), relocs

    def transposed(self) -> GemmCall:
        """Return the same product as its transpose: B times A, into Y by columns."""
        turn = Operand.turned
        extras = tuple((name, turn(operand)) for name, operand in self.extras)
        return GemmCall(self.n, self.m, self.k, self.batch, self.b, self.a, turn(self.y), extras,
                        self.epilogue, tuple(turn(operand) for operand in self.more),
                        self.scalars)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """A, B, Y, then the extras: the order of Args."""
        return (self.a, self.b, self.y, *(operand for _, operand in self.extras))

    def context(self, tensor_maps: bool = False, sources: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return what every GEMM template is rendered with beyond its own classes.

        Args:
            tensor_maps: the arguments are those of pack_tensor_maps.
            sources: names of the operands before the extras there.
        """
        extras = tuple((name, x.dtype, x.spread) for name, x in self.extras)
        return {
            "TYPE_A": DTYPES[self.a.dtype].c_type,
            "TYPE_B": DTYPES[self.b.dtype].c_type,
            "TYPE_Y": DTYPES[self.y.dtype].c_type,
            "OUTPUTS": 1 + len(self.more),
            "SOURCES": sources,
            **_epilogue_context(self.epilogue, extras, tensor_maps, sources, self.y.dtype),
        }


@lru_cache(maxsize=1024)
def _epilogue_context(epilogue: ExprBundle, extras: tuple[tuple[str, str, str], ...],
                      tensor_maps: bool, sources: tuple[str, ...],
                      result: str) -> dict[str, Any]:
    names = ["acc"] + [f"{extra_name(i)}_value" for i in range(1, epilogue.n_inputs)]
    rendered = render_c(epilogue.outputs, names, scalars=EPILOGUE_SCALARS)
    # Results of 16 bits are computed with the cheaper functions of <ge2/gemm/rounded_math.cuh>.
    functions = f"ge2::rounded_{result}::" if result in ("f16", "bf16") else "ge2::"
    lines = tuple(line.replace("ge2::", functions) for line in rendered.lines)
    operands = [name for name, _, _ in extras]
    dtype = (tensor_map_args_dtype([*sources, *operands], len(epilogue.outputs)) if tensor_maps
             else plain_args_dtype(operands))
    assert dtype.fields is not None
    unused = dtype.fields.get("unused")
    return {
        "ARGS_CHECKS": args_checks(dtype),
        "PADDING": unused[0].itemsize // 8 if unused else 0,
        "EPILOGUE_INPUTS": tuple((n, DTYPES[d].c_type, spread) for n, d, spread in extras),
        "EPILOGUE_LINES": lines,
        "EPILOGUE_RESULT": rendered.results[0],
        "EPILOGUE_RESULTS": rendered.results,
    }


def extra_name(index: int) -> str:
    """Return the C++ name of an epilogue's input number index (0 is the accumulator)."""
    return ("acc", "bias", "c")[index] if index < 3 else f"extra{index - 3}"


@lru_cache(maxsize=4096)
def gemm_call(problem: Problem) -> GemmCall:
    """Return the normal form of a GEMM_BIAS_ACT problem.

    Raises:
        Invalid: the epilogue reads an input or a scalar that is absent.
        Unsupported: more than three batch axes are left after merging.
    """
    attrs = problem.attr_map
    a, b, y = problem.inputs[0], problem.inputs[1], problem.outputs[0]
    epilogue = attrs.get("epilogue")
    if a is None or b is None or not isinstance(epilogue, ExprBundle):
        raise Invalid("GEMM_BIAS_ACT needs A, B and an epilogue", found=problem)
    if epilogue.n_scalars > len(EPILOGUE_SCALARS):
        raise Invalid("the epilogue reads other scalars than alpha and beta", argument="epilogue",
                      found=epilogue.text)
    slots = [i + 1 for i in range(1, epilogue.n_inputs) if epilogue.input_dtypes[i] is not None]
    extras = [_present(problem, slot) for slot in slots]
    more = problem.outputs[1:]
    rows_of_y = str(attrs.get("rows", "none"))
    results = len(more) + (rows_of_y == "none")
    if results != len(epilogue.outputs):
        raise Invalid("the epilogue has another number of results than there are outputs",
                      found=len(epilogue.outputs), wanted=results)

    k = a.shape[-2] if attrs.get("trans_a") else a.shape[-1]
    specs = (a, b, y, *more, *extras)
    m, rows, columns, axes = product_axes(specs, bool(attrs.get("trans_a")),
                                          bool(attrs.get("trans_b")))
    for i, extent in enumerate((m, y.shape[-1], m)):
        rows[i] = rows[i] if extent > 1 else 0  # never stepped along, so nothing to be aligned
    if len(axes) > MAX_BATCH_AXES:
        raise Unsupported("too many batch axes with unrelated strides", argument="A",
                          found=len(axes), wanted=f"at most {MAX_BATCH_AXES}")
    padded = [(1, (0,) * len(specs))] * (MAX_BATCH_AXES - len(axes)) + axes
    written = range(len(problem.inputs), len(problem.inputs) + 1 + len(more))
    operands = [
        Operand(slot, spec.dtype, spec.align, rows[i], columns[i],
                tuple(strides[i] for _, strides in padded))
        for i, (slot, spec) in enumerate(zip((0, 1, *written, *slots), specs, strict=True))
    ]
    named = zip((extra_name(slot - 1) for slot in slots), operands[3 + len(more):], strict=True)
    scalars = [float(attrs.get(name, 1.0)) for name in EPILOGUE_SCALARS]  # type: ignore[arg-type]
    return GemmCall(m, y.shape[-1], k, tuple(extent for extent, _ in padded),
                    operands[0], operands[1], operands[2], tuple(named), epilogue,
                    tuple(operands[3:2 + results]), (scalars[0], scalars[1]), rows_of_y,
                    operands[2 + results] if rows_of_y != "none" else None)


def skinny_call(problem: Problem) -> GemmCall:
    """Return the call with its small operand as A: transposed where n is smaller than m."""
    call = gemm_call(problem)
    return call if call.m <= call.n else call.transposed()


def skinny_refusal(variant: Variant, call: GemmCall) -> str:
    """Return why a skinny variant cannot serve a call of skinny_call; empty where it can."""
    most = int(variant.param("MT"))
    if not most // 2 < call.m <= most:
        return f"takes {most // 2 + 1} to {most} rows, not {call.m}"
    width = 16 // DTYPES[call.a.dtype].itemsize
    if most > 8 and width > 4:
        return "more than 8 rows of 16-bit values are work for tensor cores"
    if call.a.vector(False, (width,)) != width:
        return "the small operand is not aligned along K"
    by_rows = call.b.column == 1
    if call.b.vector(not by_rows, (width,)) != width:
        return "the large operand is not aligned to 16 bytes"
    return "" if by_rows or call.n % width == 0 else f"N is no multiple of {width}"


def _present(problem: Problem, slot: int) -> TensorSpec:
    spec = problem.inputs[slot] if slot < len(problem.inputs) else None
    if spec is None:
        raise Invalid("the epilogue reads an input that is absent", argument=f"input {slot}")
    return spec
