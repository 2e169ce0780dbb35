"""Checks of a problem against its operator, made before any kernel is chosen.

They protect kernels from calls that would read or write out of bounds. Each raises the exception
whose status code a plain launcher returns.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..compiler.ir.expr import ExprBundle
from ..compiler.ir.row import RowOp
from ..errors import DtypeMismatch, Invalid, MissingInput, StrideMismatch
from ..problem import Problem, TensorSpec
from . import check_attention, check_lab, check_products
from .check_shapes import Check, broadcasts, require
from .schemas import KernelOp, kernel_op


def check_problem(problem: Problem) -> None:
    """Check presence, ranks, shapes and output strides of a problem.

    Raises:
        MissingInput, ShapeMismatch, DtypeMismatch, StrideMismatch, Invalid.
    """
    op = kernel_op(problem.op_type)
    for slot, spec in enumerate(problem.inputs):
        if spec is None and not op.is_optional(slot):
            raise MissingInput(f"{op.name} needs {op.input_name(slot)}",
                               argument=op.input_name(slot), found="rank -1")
    for index, output in enumerate(problem.outputs):
        _check_output_strides(output, f"output {index}")
    _CHECKS[op.name](problem, op)


def check_pointers(problem: Problem, pointers: Sequence[int]) -> None:
    """Check that every tensor that has elements has an address, a multiple of its item size.

    Raises:
        MissingInput: a null address. StrideMismatch: an address between two elements.
    """
    from ..contract import DTYPES

    op = kernel_op(problem.op_type)
    n_in = len(problem.inputs)
    for slot, (spec, pointer) in enumerate(zip(problem.tensors, pointers, strict=True)):
        if spec is None or spec.size == 0:
            continue
        name = op.input_name(slot) if slot < n_in else f"output {slot - n_in}"
        if pointer == 0:
            raise MissingInput(f"{op.name} got no address for {name}", argument=name, found=0,
                               hint="An optional input that is absent has rank -1")
        itemsize = DTYPES[spec.dtype].itemsize
        if pointer % itemsize:
            raise StrideMismatch(f"the address of {name} lies between two elements", argument=name,
                                 found=hex(pointer), wanted=f"a multiple of {itemsize}")


def _check_output_strides(spec: TensorSpec, name: str) -> None:
    if spec.size <= 1:
        return
    order = sorted((abs(s), n) for s, n in zip(spec.strides, spec.shape, strict=True) if n > 1)
    reach = 0
    for stride, extent in order:
        if stride <= reach:
            raise StrideMismatch(f"elements of {name} overlap", argument=name,
                                 found=f"shape {spec.shape} strides {spec.strides}",
                                 wanted="one address per element")
        reach += stride * (extent - 1)


def _elementwise(problem: Problem, op: KernelOp) -> None:
    shape = problem.outputs[0].shape
    for index, spec in enumerate(problem.outputs):
        require(spec.shape == shape, f"output {index}", spec, shape)
    for slot, operand in enumerate(problem.inputs):
        if operand is not None:
            require(operand.shape == shape, op.input_name(slot), operand,
                    f"{shape}, expanded by stride 0")
    bundle = problem.attr_map["expr"]
    if not isinstance(bundle, ExprBundle):
        raise Invalid("ELEMENTWISE needs an expression", argument="expr", found=bundle,
                      wanted="the id of an ExprBundle")
    if bundle.n_inputs > len(problem.inputs):
        raise MissingInput("the expression reads more inputs than there are", argument="expr",
                           found=len(problem.inputs), wanted=bundle.n_inputs)
    if len(bundle.outputs) != len(problem.outputs):
        raise Invalid("the expression has another number of results", argument="n",
                      found=f"{len(problem.outputs)} outputs", wanted=len(bundle.outputs))


def _row(problem: Problem, op: KernelOp) -> None:
    x = problem.inputs[0]
    assert x is not None
    if not isinstance(problem.attr_map["row"], RowOp):
        raise Invalid("ROW needs a row operator", argument="row", found=problem.attr_map["row"],
                      wanted="the id of a RowOp")
    require(len(x.shape) >= 1, "x", x, "[*rows, n]")
    for index, y in enumerate(problem.outputs):
        require(y.shape in (x.shape, x.shape[:-1]), f"output {index}", y,
                f"{x.shape} or {x.shape[:-1]}")
    for slot, spec in enumerate(problem.inputs[1:], start=1):
        if spec is not None:
            require(broadcasts(spec.shape, x.shape), op.input_name(slot), spec,
                    f"a shape that broadcasts to {x.shape}")


def _concat(problem: Problem, op: KernelOp) -> None:
    y = problem.outputs[0]
    axis = _axis(problem, len(y.shape))
    total = 0
    for slot, spec in enumerate(problem.inputs):
        assert spec is not None
        wanted = list(y.shape)
        if len(spec.shape) == len(wanted):
            wanted[axis] = spec.shape[axis]
            total += spec.shape[axis]
        require(spec.shape == tuple(wanted), op.input_name(slot), spec, tuple(wanted))
        _same_dtype(problem, op.input_name(slot), spec)
    require(total == y.shape[axis], "output 0", y, f"extent {total} along axis {axis}")


def _axis(problem: Problem, rank: int) -> int:
    axis = problem.attr_map["axis"]
    assert isinstance(axis, int)
    if not 0 <= axis < rank:
        raise Invalid("there is no such axis", argument="axis", found=axis,
                      wanted=f"0 to {rank - 1}")
    return axis


def _same_dtype(problem: Problem, name: str, spec: TensorSpec) -> None:
    wanted = problem.outputs[0].dtype
    if spec.dtype != wanted:
        raise DtypeMismatch(f"{problem.op_type} does not convert", argument=name,
                            found=spec.dtype, wanted=wanted)


def _gather(problem: Problem, _op: KernelOp) -> None:
    x, indices = problem.inputs
    assert x is not None and indices is not None
    axis = _axis(problem, len(x.shape))
    y = problem.outputs[0]
    wanted = x.shape[:axis] + indices.shape + x.shape[axis + 1:]
    require(y.shape == wanted, "output 0", y, wanted)
    _same_dtype(problem, "x", x)
    if indices.dtype not in ("i32", "i64"):
        raise DtypeMismatch("GATHER takes integer indices", argument="indices",
                            found=indices.dtype, wanted="i32 or i64")


def _scan(problem: Problem, _op: KernelOp) -> None:
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    require(len(x.shape) > 0, "x", x, "an axis to run along")
    require(y.shape == x.shape, "output 0", y, x.shape)
    _same_dtype(problem, "x", x)


def _pad(problem: Problem, _op: KernelOp) -> None:
    x, y, pads = problem.inputs[0], problem.outputs[0], problem.attr_map["pads"]
    assert x is not None and isinstance(pads, tuple)
    rank = len(x.shape)
    if len(pads) != 2 * rank:
        raise Invalid("PAD takes two numbers per axis", argument="pads", found=pads,
                      wanted=f"{2 * rank} numbers")
    wanted = tuple(n + pads[i] + pads[rank + i] for i, n in enumerate(x.shape))
    require(y.shape == wanted, "output 0", y, wanted)
    require(y.is_dense, "output 0", y, "dense")
    require(x.size > 0 or problem.attr_map["mode"] == "constant", "x", x,
            "elements to repeat")
    _same_dtype(problem, "x", x)


def _resample(problem: Problem, op: KernelOp) -> None:
    from ..compiler import opdefs
    from ..compiler.ir.types import TensorType

    types = [None if t is None else TensorType(t.dtype, t.shape) for t in problem.inputs]
    wanted, = opdefs.infer("RESAMPLE", types, {"axes": problem.attr_map["axes"]})
    y = problem.outputs[0]
    require(y.shape == wanted.shape, "output 0", y, wanted.shape)
    for slot, spec in enumerate(problem.tensors):
        if spec is not None:
            require(spec.is_dense, op.input_name(slot), spec, "dense")
    _same_dtype(problem, "x", problem.inputs[0])  # type: ignore[arg-type] # checked by infer


def _conv(problem: Problem, _op: KernelOp) -> None:
    x, w = problem.inputs[:2]
    bias, residual = (*problem.inputs[2:], None, None)[:2]
    y = problem.outputs[0]
    assert x is not None and w is not None
    for name, spec in (("x", x), ("w", w), ("output 0", y)):
        require(len(spec.shape) == 4, name, spec, "4 axes")
    if residual is not None:
        require(residual.shape == y.shape, "residual", residual, y.shape)
    group = problem.attr_map["group"]
    assert isinstance(group, int)
    channels = w.shape[0]
    if group < 1 or channels % group:
        raise Invalid("the groups do not divide the output channels", argument="group",
                      found=group, wanted=f"a divisor of {channels}")
    require(w.shape[1] * group == x.shape[1], "w", w, f"{x.shape[1]} // {group} input channels")
    if bias is not None:
        require(bias.shape == (channels,), "bias", bias, (channels,))
    wanted = (x.shape[0], channels, *window_extents(problem, x.shape, w.shape[2:]))
    require(y.shape == wanted, "output 0", y, wanted)


def _pool(problem: Problem, _op: KernelOp) -> None:
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    require(len(x.shape) == 4, "x", x, "4 axes")
    _same_dtype(problem, "x", x)
    kernel = _ints(problem, "kernel_shape", 2, least=1)
    extents = window_extents(problem, x.shape, kernel)
    # In ceil mode a last window may hang over the end.
    fits = len(y.shape) == 4 and all(
        extent <= given <= extent + 1
        for extent, given in zip(extents, y.shape[2:], strict=True))
    require(fits and y.shape[:2] == x.shape[:2], "output 0", y, (*x.shape[:2], *extents))


def window_extents(problem: Problem, x: tuple[int, ...], kernel: tuple[int, ...]) -> list[int]:
    """Return how many whole windows fit along the last two axes of x, padding included."""
    strides = _ints(problem, "strides", 2, least=1)
    dilations = _ints(problem, "dilations", 2, least=1)
    pads = _ints(problem, "pads", 4, least=0)
    return [max(0, (x[2 + i] + pads[i] + pads[2 + i] - (kernel[i] - 1) * dilations[i] - 1)
                // strides[i] + 1) for i in range(2)]


def _ints(problem: Problem, name: str, count: int, *, least: int) -> tuple[int, ...]:
    values = problem.attr_map[name]
    assert isinstance(values, tuple)
    if len(values) != count or min(values) < least:
        raise Invalid(f"bad {name} of {problem.op_type}", argument=name, found=values,
                      wanted=f"{count} numbers of at least {least}")
    return values


_CHECKS: dict[str, Check] = {
    "ELEMENTWISE": _elementwise,
    "ROW": _row,
    "CONCAT": _concat,
    "GATHER": _gather,
    "PAD": _pad,
    "SCAN": _scan,
    "RESAMPLE": _resample,
    "CONV2D": _conv,
    "POOL2D": _pool,
    "LAB_COMPOSE_ROWS": _row,
    **check_products.CHECKS,
    **check_attention.CHECKS,
    **check_lab.CHECKS,
}
