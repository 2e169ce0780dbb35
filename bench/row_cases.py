"""The problems of bench.rows, each with its torch counterpart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ge2.compiler.ir.row import RowOp
from ge2.compiler.ir.row_ops import build_row_op
from ge2.problem import Problem, TensorSpec

from .side_by_side import Case, Peer

BYTES = 256 << 20
LENGTHS = (128, 512, 1024, 4096, 16384, 65536, 262144, 1 << 20)
DTYPES = ("bf16", "f32")


def goal_of(n: int, dtype: str) -> float:
    """Return the share of a copy that rows of n elements should reach."""
    if n <= 16384:
        return 0.96
    if n <= 262144:
        return 0.92
    return 0.84 if dtype == "f32" else 0.87


def operator(name: str, dtype: str) -> RowOp:
    """Return a row operator as graphs lower it for a storage dtype."""
    if name == "layer_norm":
        return build_row_op(name, pivot=dtype == "f32")
    return build_row_op(name)


def problem_of(op: RowOp, dtype: str, shape: tuple[int, ...], outs: Sequence[str] = (),
               operands: Sequence[TensorSpec] | None = None) -> Problem:
    """Return a dense row problem; extras are one row that all rows share."""
    full = TensorSpec.dense(dtype, shape)
    weights = (0,) * (len(shape) - 1) + (1,)
    inputs = list(operands) if operands else (
        [full] * op.n_inputs + [TensorSpec(dtype, shape, weights)] * op.n_extras)
    kinds = outs or (dtype,) * len(op.outputs)
    outputs = [TensorSpec.dense(kind, shape if where == "row" else shape[:-1])
               for kind, where in zip(kinds, op.outputs, strict=True)]
    return Problem("ROW", tuple(inputs), tuple(outputs), (("row", op),))


def softmax_peer(t: Sequence[Any]) -> Any:
    """Softmax over the last axis into the given output."""
    import torch

    return torch.ops.aten._softmax.out(t[0], -1, False, out=t[1])


def layer_norm_peer(t: Sequence[Any]) -> Any:
    """Layer norm over the last axis; the weights are its last row."""
    import torch

    rows = [w[(0,) * (w.dim() - 1)] for w in t[1:3]]
    return torch.nn.functional.layer_norm(t[0], (t[0].shape[-1],), *rows)


def rms_norm_peer(t: Sequence[Any]) -> Any:
    """RMS norm over the last axis."""
    import torch

    return torch.nn.functional.rms_norm(t[0], (t[0].shape[-1],), t[1][(0,) * (t[1].dim() - 1)],
                                        1e-5)


MAIN: dict[str, Peer] = {
    "softmax": softmax_peer, "layer_norm": layer_norm_peer, "rms_norm": rms_norm_peer}


def main_cases(lengths: Sequence[int] = LENGTHS, dtypes: Sequence[str] = DTYPES,
               ops: Sequence[str] = tuple(MAIN)) -> Iterator[Case]:
    """Yield softmax and norms over 256 MB for each length and dtype."""
    for name in ops:
        for dtype in dtypes:
            for n in lengths:
                rows = max(BYTES // (2 if dtype != "f32" else 4) // n, 1)
                yield Case(f"{name} {dtype} {rows}x{n}",
                           problem_of(operator(name, dtype), dtype, (rows, n)), MAIN[name],
                           goal_of(n, dtype))


def cached_cases() -> Iterator[Case]:
    """Yield inputs that stay in the L2 cache."""
    for rows, n in ((333, 1000), (4096, 1024), (1024, 4096), (64, 8192)):
        for name in MAIN:
            for dtype in DTYPES:
                yield Case(f"{name} {dtype} {rows}x{n}",
                           problem_of(operator(name, dtype), dtype, (rows, n)), MAIN[name],
                           1.4, ratio=True, hot=True)


def odd_cases() -> Iterator[Case]:
    """Yield lengths that are no multiple of anything, and their neighbours that are."""
    for n in (1000, 1001, 4095, 4099, 50257, 50264, 128255, 128256):
        for dtype in DTYPES:
            rows = BYTES // (2 if dtype != "f32" else 4) // n
            for name in ("softmax", "layer_norm"):
                yield Case(f"{name} {dtype} {rows}x{n}",
                           problem_of(operator(name, dtype), dtype, (rows, n)), MAIN[name],
                           0.9 * goal_of(n, dtype))


def _sum_peer(axis: int) -> Peer:
    import torch

    return lambda t: torch.sum(t[0], axis, out=t[1])


def reduction_cases() -> Iterator[Case]:
    """Yield sums: of everything, of rows, of columns; and maxima and positions."""
    total = build_row_op("sum")
    for power in (30, 24, 20):
        yield Case(f"sum f32 2^{power}", problem_of(total, "f32", (1, 1 << power)),
                   _sum_peer(1), 0.0)
    for dtype in DTYPES:
        size = 2 if dtype != "f32" else 4
        for n in (256, 4096, 16384):
            rows = BYTES // size // n
            yield Case(f"row sum {dtype} {rows}x{n}", problem_of(total, dtype, (rows, n)),
                       _sum_peer(1), 0.96)
            for op in ("sum", "max"):
                columns = TensorSpec(dtype, (n, rows), (1, n))
                peer = _sum_peer(1) if op == "sum" else (lambda t: t[0].amax(1))
                yield Case(f"column {op} {dtype} {rows}x{n}", problem_of(
                    build_row_op(op), dtype, (n, rows), operands=[columns]), peer, 0.95)
    for op, peer in (("argmax", lambda t: t[0].argmax(1)), ("logsumexp",
                     lambda t: t[0].logsumexp(1)), ("max", lambda t: t[0].amax(1))):
        yield Case(f"{op} bf16 32768x4096", problem_of(
            build_row_op(op), "bf16", (32768, 4096), ["i64" if op == "argmax" else "bf16"]),
            peer, 0.92)


def fused_cases() -> Iterator[Case]:
    """Yield operators with several operands or results, each datum read and written once."""
    import torch

    for dtype in DTYPES:
        size = 2 if dtype != "f32" else 4
        for n in (1024, 4096, 16384):
            rows = BYTES // 2 // size // n
            rounding = dtype if dtype != "f32" else ""
            yield Case(f"add_rms_norm {dtype} {rows}x{n}", problem_of(
                build_row_op("add_rms_norm", rounding=rounding), dtype, (rows, n)), None, 0.92)
            yield Case(f"add_layer_norm {dtype} {rows}x{n}", problem_of(
                build_row_op("add_layer_norm", rounding=rounding), dtype, (rows, n)), None, 0.92)
            yield Case(f"softmax_grad {dtype} {rows}x{n}", problem_of(
                build_row_op("softmax_grad"), dtype, (rows, n)),
                lambda t: torch._softmax_backward_data(t[1], t[0], -1, t[0].dtype), 0.92)
            yield Case(f"quantize_rows {dtype} {rows}x{n}", problem_of(
                build_row_op("quantize_rows"), dtype, (rows, n), ["i8", "f32"]), None, 0.92)
            full, label = (TensorSpec.dense(dtype, (rows, n)), TensorSpec("i64", (rows, n), (1, 0)))
            yield Case(f"cross_entropy {dtype} {rows}x{n}", problem_of(
                build_row_op("cross_entropy"), dtype, (rows, n), ["f32", dtype],
                [full, label]), None, 0.92)


SECTIONS: dict[str, Callable[[], Iterator[Case]]] = {
    "main": main_cases,
    "cached": cached_cases,
    "odd": odd_cases,
    "reductions": reduction_cases,
    "fused": fused_cases,
}
