"""Checks of a problem against its operator, made before any kernel is chosen.

They protect kernels from calls that would read or write out of bounds. Each raises the exception
whose status code a plain launcher returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..compiler.ir.expr import ExprBundle
from ..compiler.ir.row import RowOp
from ..errors import DtypeMismatch, Invalid, MissingInput, ShapeMismatch, StrideMismatch
from ..problem import Problem, TensorSpec
from .schemas import KernelOp, kernel_op

WINDOW_TILE = 1024  # outputs of one tile of LAB_STAGE
WINDOW_SLACK = 64  # inputs beyond a tile that its window may reach


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


def _require(condition: bool, name: str, spec: TensorSpec, wanted: object) -> None:
    if not condition:
        raise ShapeMismatch(f"bad shape of {name}", argument=name, found=spec.shape, wanted=wanted)


def _elementwise(problem: Problem, op: KernelOp) -> None:
    shape = problem.outputs[0].shape
    for index, spec in enumerate(problem.outputs):
        _require(spec.shape == shape, f"output {index}", spec, shape)
    for slot, operand in enumerate(problem.inputs):
        if operand is not None:
            _require(operand.shape == shape, op.input_name(slot), operand,
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


def _gemm(problem: Problem, op: KernelOp) -> None:
    a, b = problem.inputs[:2]
    y = problem.outputs[0]
    assert a is not None and b is not None
    _require(len(y.shape) >= 2, "output 0", y, "at least 2 axes")
    batch, (m, n) = y.shape[:-2], y.shape[-2:]
    for name, spec in (("A", a), ("B", b)):
        _require(len(spec.shape) >= 2 and spec.shape[:-2] == batch, name, spec,
                 f"batch axes {batch} (expanded by stride 0) and a matrix")
    a_rows, a_cols = _matrix(a, bool(problem.attr_map["trans_a"]))
    b_rows, b_cols = _matrix(b, bool(problem.attr_map["trans_b"]))
    _require(a_rows == m, "A", a, f"op(A) with {m} rows")
    _require(b_cols == n, "B", b, f"op(B) with {n} columns")
    _require(a_cols == b_rows, "B", b, f"op(B) with {a_cols} rows")
    for slot, extra in enumerate(problem.inputs[2:], start=2):
        if extra is not None:
            _require(extra.shape == y.shape, op.input_name(slot), extra,
                     f"{y.shape}, expanded by stride 0")
    if problem.attr_map.get("rows", "none") != "none":
        last = len(problem.outputs) - 1
        _require(last > 0 and problem.outputs[last].shape == (*batch, m, 1), f"output {last}",
                 problem.outputs[last], (*batch, m, 1))


def _attention(problem: Problem, op: KernelOp) -> None:
    from ..compiler import opdefs
    from ..compiler.ir.types import TensorType

    q, k = problem.inputs[:2]
    assert q is not None and k is not None
    _require(len(q.shape) == 4, "q", q, "4 axes: batch, head, query, element")
    types = [None if t is None else TensorType(t.dtype, t.shape) for t in problem.inputs]
    attrs = {**problem.attr_map, "lse": len(problem.outputs) > 1}
    wanted = opdefs.infer("ATTENTION", types, attrs)
    for index, (spec, kind) in enumerate(zip(problem.outputs, wanted, strict=True)):
        _require(spec.shape == kind.shape, f"output {index}", spec, kind.shape)
        if spec.dtype != kind.dtype:
            raise DtypeMismatch("ATTENTION makes another element type", argument=f"output {index}",
                                found=spec.dtype, wanted=kind.dtype)
    named = {op.input_name(slot): spec for slot, spec in enumerate(problem.inputs)}
    starts = named.get("q_starts")
    scores = (starts.shape[0] - 1 if starts else q.shape[0], *q.shape[1:3], k.shape[2])
    for name, given in named.items():
        if given is None and name.startswith("extras"):
            raise MissingInput("the formula of the scores needs its operands", argument=name,
                               found="rank -1")
        if given is not None and name.startswith(("mask", "extras")):
            _require(given.shape == scores, name, given, f"{scores}, expanded by stride 0")
        if given is not None and name in ("kv_len", "q_starts", "k_starts") and not given.is_dense:
            raise StrideMismatch("lengths and starts lie side by side", argument=name,
                                 found=given.strides, wanted="(1,)")


def _attention_grad(problem: Problem, op: KernelOp) -> None:
    from ..compiler import opdefs
    from ..compiler.ir.types import TensorType

    types = [None if t is None else TensorType(t.dtype, t.shape) for t in problem.inputs]
    wanted = opdefs.infer("ATTENTION_GRAD", types, problem.attr_map)
    for index, (spec, kind) in enumerate(zip(problem.outputs, wanted, strict=True)):
        _require(spec.shape == kind.shape, f"output {index}", spec, kind.shape)
        if spec.dtype != kind.dtype:
            raise DtypeMismatch("ATTENTION_GRAD makes another element type",
                                argument=f"output {index}", found=spec.dtype, wanted=kind.dtype)
    named = {op.input_name(slot): spec for slot, spec in enumerate(problem.inputs)}
    q, k, mask, length = (named.get(n) for n in ("q", "k", "mask", "kv_len"))
    assert q is not None and k is not None
    scores = (*q.shape[:3], k.shape[2])
    if mask is not None:
        _require(mask.shape == scores, "mask", mask, f"{scores}, expanded by stride 0")
    if length is not None and not length.is_dense:
        raise StrideMismatch("lengths lie side by side", argument="kv_len", found=length.strides,
                             wanted="(1,)")


def _paged_attention(problem: Problem, op: KernelOp) -> None:
    from ..compiler import opdefs
    from ..compiler.ir.types import TensorType

    types = [None if t is None else TensorType(t.dtype, t.shape) for t in problem.inputs]
    attrs = {**problem.attr_map, "lse": len(problem.outputs) > 1}
    wanted = opdefs.infer("PAGED_ATTENTION", types, attrs)
    for index, (spec, kind) in enumerate(zip(problem.outputs, wanted, strict=True)):
        _require(spec.shape == kind.shape, f"output {index}", spec, kind.shape)
        if spec.dtype != kind.dtype:
            raise DtypeMismatch("PAGED_ATTENTION makes another element type",
                                argument=f"output {index}", found=spec.dtype, wanted=kind.dtype)
    named = {op.input_name(slot): spec for slot, spec in enumerate(problem.inputs)}
    q, k, table, length, mask = (named.get(n) for n in ("q", "k", "block_table", "kv_len", "mask"))
    assert q is not None and k is not None and table is not None and length is not None
    scores = (*q.shape[:3], table.shape[1] * k.shape[2])
    if mask is not None:
        _require(mask.shape == scores, "mask", mask, f"{scores}, expanded by stride 0")
    for name, spec in (("block_table", table), ("kv_len", length)):
        if spec.strides[-1] != 1 and spec.shape[-1] > 1:
            raise StrideMismatch("table entries and lengths lie side by side", argument=name,
                                 found=spec.strides, wanted="a last stride of 1")


def _norm_gemm(problem: Problem, op: KernelOp) -> None:
    x, scale, b = problem.inputs[:3]
    y = problem.outputs[0]
    assert x is not None and scale is not None and b is not None
    for slot in (0, 2):
        spec = problem.inputs[slot]
        assert spec is not None
        _require(len(spec.shape) == 2, op.input_name(slot), spec, "a matrix")
    (m, k), (depth, n) = x.shape, _matrix(b, bool(problem.attr_map["trans_b"]))
    _require(depth == k, "B", b, f"op(B) with {k} rows")
    _require(y.shape == (m, n), "output 0", y, (m, n))
    for rows in problem.outputs[1:]:
        _require(rows.shape == x.shape, "output 1", rows, x.shape)
    for slot in (1, 3):
        parameter = problem.inputs[slot] if slot < len(problem.inputs) else None
        if parameter is not None:
            _require(parameter.shape == (k,), op.input_name(slot), parameter, (k,))
    for slot, extra in enumerate(problem.inputs[4:], start=4):
        if extra is not None:
            _require(extra.shape == y.shape, op.input_name(slot), extra,
                     f"{y.shape}, expanded by stride 0")


def _nbits(problem: Problem, op: KernelOp) -> None:
    a, b, scales, zeros, bias = (*problem.inputs, None, None)[:5]
    y = problem.outputs[0]
    assert a is not None and b is not None and scales is not None
    size = problem.attr_map["block_size"]
    assert isinstance(size, int)
    if size < 2 or size % 2:
        raise Invalid("a block must fill whole bytes", argument="block_size", found=size,
                      wanted="an even number of at least 2")
    _require(len(a.shape) >= 2, "A", a, "[*, M, K]")
    blocks = -(-a.shape[-1] // size)
    _require(len(b.shape) == 3 and b.shape[1:] == (blocks, size // 2), "B", b,
             f"[N, {blocks}, {size // 2}]")
    n = b.shape[0]
    _require(y.shape == (*a.shape[:-1], n), "output 0", y, (*a.shape[:-1], n))
    _require(scales.shape == (n, blocks), "scales", scales, (n, blocks))
    if zeros is not None:
        _require(zeros.shape == (n, (blocks + 1) // 2), "zero_points", zeros,
                 (n, (blocks + 1) // 2))
    for name, spec in (("B", b), ("zero_points", zeros)):
        if spec is None:
            continue
        if spec.dtype != "u8":
            raise DtypeMismatch("codes lie two in a byte", argument=name, found=spec.dtype,
                                wanted="u8")
        inner = spec.strides[1:] if name == "zero_points" else (spec.strides[1] // (size // 2),
                                                                spec.strides[2])
        if spec.size > 1 and any(s != 1 and e > 1 for s, e in zip(inner, spec.shape[1:],
                                                                  strict=True)):
            raise StrideMismatch(f"rows of {name} have gaps", argument=name, found=spec.strides,
                                 wanted="rows that lie in one piece")
    if bias is not None:
        _require(bias.shape == y.shape, "bias", bias, f"{y.shape}, expanded by stride 0")


def _matrix(spec: TensorSpec, transposed: bool) -> tuple[int, int]:
    rows, cols = spec.shape[-2:]
    return (cols, rows) if transposed else (rows, cols)


def _row(problem: Problem, op: KernelOp) -> None:
    x = problem.inputs[0]
    assert x is not None
    if not isinstance(problem.attr_map["row"], RowOp):
        raise Invalid("ROW needs a row operator", argument="row", found=problem.attr_map["row"],
                      wanted="the id of a RowOp")
    _require(len(x.shape) >= 1, "x", x, "[*rows, n]")
    for index, y in enumerate(problem.outputs):
        _require(y.shape in (x.shape, x.shape[:-1]), f"output {index}", y,
                 f"{x.shape} or {x.shape[:-1]}")
    for slot, spec in enumerate(problem.inputs[1:], start=1):
        if spec is not None:
            _require(_broadcasts(spec.shape, x.shape), op.input_name(slot), spec,
                     f"a shape that broadcasts to {x.shape}")


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(have in (1, want) for have, want in pairs)


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
        _require(spec.shape == tuple(wanted), op.input_name(slot), spec, tuple(wanted))
        _same_dtype(problem, op.input_name(slot), spec)
    _require(total == y.shape[axis], "output 0", y, f"extent {total} along axis {axis}")


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
    _require(y.shape == wanted, "output 0", y, wanted)
    _same_dtype(problem, "x", x)
    if indices.dtype not in ("i32", "i64"):
        raise DtypeMismatch("GATHER takes integer indices", argument="indices",
                            found=indices.dtype, wanted="i32 or i64")


def _scan(problem: Problem, _op: KernelOp) -> None:
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    _require(len(x.shape) > 0, "x", x, "an axis to run along")
    _require(y.shape == x.shape, "output 0", y, x.shape)
    _same_dtype(problem, "x", x)


def _pad(problem: Problem, _op: KernelOp) -> None:
    x, y, pads = problem.inputs[0], problem.outputs[0], problem.attr_map["pads"]
    assert x is not None and isinstance(pads, tuple)
    rank = len(x.shape)
    if len(pads) != 2 * rank:
        raise Invalid("PAD takes two numbers per axis", argument="pads", found=pads,
                      wanted=f"{2 * rank} numbers")
    wanted = tuple(n + pads[i] + pads[rank + i] for i, n in enumerate(x.shape))
    _require(y.shape == wanted, "output 0", y, wanted)
    _require(y.is_dense, "output 0", y, "dense")
    _require(x.size > 0 or problem.attr_map["mode"] == "constant", "x", x,
             "elements to repeat")
    _same_dtype(problem, "x", x)


def _resample(problem: Problem, op: KernelOp) -> None:
    from ..compiler import opdefs
    from ..compiler.ir.types import TensorType

    types = [None if t is None else TensorType(t.dtype, t.shape) for t in problem.inputs]
    wanted, = opdefs.infer("RESAMPLE", types, {"axes": problem.attr_map["axes"]})
    y = problem.outputs[0]
    _require(y.shape == wanted.shape, "output 0", y, wanted.shape)
    for slot, spec in enumerate(problem.tensors):
        if spec is not None:
            _require(spec.is_dense, op.input_name(slot), spec, "dense")
    _same_dtype(problem, "x", problem.inputs[0])  # type: ignore[arg-type] # checked by infer


def _conv(problem: Problem, _op: KernelOp) -> None:
    x, w = problem.inputs[:2]
    bias, residual = (*problem.inputs[2:], None, None)[:2]
    y = problem.outputs[0]
    assert x is not None and w is not None
    for name, spec in (("x", x), ("w", w), ("output 0", y)):
        _require(len(spec.shape) == 4, name, spec, "4 axes")
    if residual is not None:
        _require(residual.shape == y.shape, "residual", residual, y.shape)
    group = problem.attr_map["group"]
    assert isinstance(group, int)
    channels = w.shape[0]
    if group < 1 or channels % group:
        raise Invalid("the groups do not divide the output channels", argument="group",
                      found=group, wanted=f"a divisor of {channels}")
    _require(w.shape[1] * group == x.shape[1], "w", w, f"{x.shape[1]} // {group} input channels")
    if bias is not None:
        _require(bias.shape == (channels,), "bias", bias, (channels,))
    wanted = (x.shape[0], channels, *_window_extents(problem, x, w.shape[2:]))
    _require(y.shape == wanted, "output 0", y, wanted)


def _pool(problem: Problem, _op: KernelOp) -> None:
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    _require(len(x.shape) == 4, "x", x, "4 axes")
    _same_dtype(problem, "x", x)
    kernel = _ints(problem, "kernel_shape", 2, least=1)
    extents = _window_extents(problem, x, kernel)
    # In ceil mode a last window may hang over the end.
    fits = len(y.shape) == 4 and all(
        extent <= given <= extent + 1
        for extent, given in zip(extents, y.shape[2:], strict=True))
    _require(fits and y.shape[:2] == x.shape[:2], "output 0", y, (*x.shape[:2], *extents))


def _window_extents(problem: Problem, x: TensorSpec, kernel: tuple[int, ...]) -> list[int]:
    """Return how many whole windows fit along the last two axes of x, padding included."""
    strides = _ints(problem, "strides", 2, least=1)
    dilations = _ints(problem, "dilations", 2, least=1)
    pads = _ints(problem, "pads", 4, least=0)
    return [max(0, (x.shape[2 + i] + pads[i] + pads[2 + i] - (kernel[i] - 1) * dilations[i] - 1)
                // strides[i] + 1) for i in range(2)]


def _ints(problem: Problem, name: str, count: int, *, least: int) -> tuple[int, ...]:
    values = problem.attr_map[name]
    assert isinstance(values, tuple)
    if len(values) != count or min(values) < least:
        raise Invalid(f"bad {name} of {problem.op_type}", argument=name, found=values,
                      wanted=f"{count} numbers of at least {least}")
    return values


def _normalize_sum(problem: Problem, _op: KernelOp) -> None:
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    _require(y.shape == x.shape, "output 0", y, x.shape)


def _lab_rows(problem: Problem, op: KernelOp) -> None:
    """The lab's row operators: further inputs are rows like x or one row for all."""
    x = problem.inputs[0]
    assert x is not None
    _require(len(x.shape) == 2, "x", x, "2 axes")
    for slot, spec in enumerate(problem.inputs[1:], start=1):
        assert spec is not None
        _require(spec.shape in (x.shape, x.shape[1:]), op.input_name(slot), spec,
                 f"{x.shape} or {x.shape[1:]}")
    for index, spec in enumerate(problem.outputs):
        _require(spec.shape in (x.shape, x.shape[:1]), f"output {index}", spec,
                 f"{x.shape} or {x.shape[:1]}")


def _lab_window(problem: Problem, _op: KernelOp) -> None:
    x, w, y = problem.inputs[0], problem.inputs[1], problem.outputs[0]
    assert x is not None and w is not None
    _require(len(w.shape) == 1 and 0 < w.size <= WINDOW_SLACK + 1, "weights", w,
             f"1 axis of at most {WINDOW_SLACK + 1}")
    _require(len(y.shape) == 1 and y.size % WINDOW_TILE == 0, "output 0", y,
             f"a multiple of {WINDOW_TILE}")
    _require(x.shape == (y.size + WINDOW_SLACK,), "x", x, (y.size + WINDOW_SLACK,))


def _lab_product(problem: Problem, op: KernelOp) -> None:
    a, b = problem.inputs[:2]
    assert a is not None and b is not None
    _require(len(a.shape) == 2, "A", a, "2 axes")
    _require(len(b.shape) == 2 and b.shape[1] == a.shape[1], "B", b, f"[n, {a.shape[1]}]")
    if not isinstance(problem.attr_map["row"], RowOp):
        raise Invalid("a composed kernel needs a row operator", argument="row",
                      found=problem.attr_map["row"], wanted="the id of a RowOp")
    shape = a.shape[0], b.shape[0]
    for index, y in enumerate(problem.outputs):
        _require(y.shape in (shape, shape[:1]), f"output {index}", y, f"{shape} or {shape[:1]}")
    for slot, spec in enumerate(problem.inputs[2:], start=2):
        assert spec is not None
        _require(_broadcasts(spec.shape, shape), op.input_name(slot), spec,
                 f"a shape that broadcasts to {shape}")


_CHECKS: dict[str, Callable[[Problem, KernelOp], None]] = {
    "ELEMENTWISE": _elementwise,
    "GEMM_BIAS_ACT": _gemm,
    "ATTENTION": _attention,
    "ATTENTION_GRAD": _attention_grad,
    "PAGED_ATTENTION": _paged_attention,
    "NORM_GEMM": _norm_gemm,
    "MATMUL_NBITS": _nbits,
    "ROW": _row,
    "CONCAT": _concat,
    "GATHER": _gather,
    "PAD": _pad,
    "SCAN": _scan,
    "RESAMPLE": _resample,
    "CONV2D": _conv,
    "POOL2D": _pool,
    "LAB_NORMALIZE_SUM": _normalize_sum,
    "LAB_REDUCE": _lab_rows,
    "LAB_STREAM": _lab_rows,
    "LAB_STAGE": _lab_window,
    "LAB_COMPOSE_ROWS": _row,
    "LAB_COMPOSE_PRODUCT": _lab_product,
    "LAB_REMAT": _lab_rows,
    "LAB_FUSE": _lab_rows,
}
