"""Checks of problems that multiply matrices."""

from __future__ import annotations

from ..errors import DtypeMismatch, Invalid, StrideMismatch
from ..problem import Problem, TensorSpec
from .check_shapes import Check, require
from .schemas import KernelOp


def _gemm(problem: Problem, op: KernelOp) -> None:
    a, b = problem.inputs[:2]
    y = problem.outputs[0]
    assert a is not None and b is not None
    require(len(y.shape) >= 2, "output 0", y, "at least 2 axes")
    batch, (m, n) = y.shape[:-2], y.shape[-2:]
    for name, spec in (("A", a), ("B", b)):
        require(len(spec.shape) >= 2 and spec.shape[:-2] == batch, name, spec,
                f"batch axes {batch} (expanded by stride 0) and a matrix")
    a_rows, a_cols = _matrix(a, bool(problem.attr_map["trans_a"]))
    b_rows, b_cols = _matrix(b, bool(problem.attr_map["trans_b"]))
    require(a_rows == m, "A", a, f"op(A) with {m} rows")
    require(b_cols == n, "B", b, f"op(B) with {n} columns")
    require(a_cols == b_rows, "B", b, f"op(B) with {a_cols} rows")
    for slot, extra in enumerate(problem.inputs[2:], start=2):
        if extra is not None:
            require(extra.shape == y.shape, op.input_name(slot), extra,
                    f"{y.shape}, expanded by stride 0")
    if problem.attr_map.get("rows", "none") != "none":
        last = len(problem.outputs) - 1
        require(last > 0 and problem.outputs[last].shape == (*batch, m, 1), f"output {last}",
                problem.outputs[last], (*batch, m, 1))


def _norm_gemm(problem: Problem, op: KernelOp) -> None:
    x, scale, b = problem.inputs[:3]
    y = problem.outputs[0]
    assert x is not None and scale is not None and b is not None
    for slot in (0, 2):
        spec = problem.inputs[slot]
        assert spec is not None
        require(len(spec.shape) == 2, op.input_name(slot), spec, "a matrix")
    (m, k), (depth, n) = x.shape, _matrix(b, bool(problem.attr_map["trans_b"]))
    require(depth == k, "B", b, f"op(B) with {k} rows")
    require(y.shape == (m, n), "output 0", y, (m, n))
    for rows in problem.outputs[1:]:
        require(rows.shape == x.shape, "output 1", rows, x.shape)
    for slot in (1, 3):
        parameter = problem.inputs[slot] if slot < len(problem.inputs) else None
        if parameter is not None:
            require(parameter.shape == (k,), op.input_name(slot), parameter, (k,))
    for slot, extra in enumerate(problem.inputs[4:], start=4):
        if extra is not None:
            require(extra.shape == y.shape, op.input_name(slot), extra,
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
    require(len(a.shape) >= 2, "A", a, "[*, M, K]")
    blocks = -(-a.shape[-1] // size)
    require(len(b.shape) == 3 and b.shape[1:] == (blocks, size // 2), "B", b,
            f"[N, {blocks}, {size // 2}]")
    n = b.shape[0]
    require(y.shape == (*a.shape[:-1], n), "output 0", y, (*a.shape[:-1], n))
    require(scales.shape == (n, blocks), "scales", scales, (n, blocks))
    if zeros is not None:
        require(zeros.shape == (n, (blocks + 1) // 2), "zero_points", zeros,
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
        require(bias.shape == y.shape, "bias", bias, f"{y.shape}, expanded by stride 0")


def _matrix(spec: TensorSpec, transposed: bool) -> tuple[int, int]:
    rows, cols = spec.shape[-2:]
    return (cols, rows) if transposed else (rows, cols)


CHECKS: dict[str, Check] = {
    "GEMM_BIAS_ACT": _gemm,
    "NORM_GEMM": _norm_gemm,
    "MATMUL_NBITS": _nbits,
}
