"""The problems of bench.elementwise, each with its torch counterpart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ge2.compiler.ir.expr import Expr, ExprBundle, const, erf, exp, input, maximum, tanh
from ge2.problem import Problem, TensorSpec

from .side_by_side import Case, Peer

DTYPES = ("bf16", "f32")
COLUMNS = 8192


def _sigmoid(x: Expr) -> Expr:
    return const(1.0) / (const(1.0) + exp(-x))


def _gelu_tanh(x: Expr) -> Expr:
    return 0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def _gelu_erf(x: Expr) -> Expr:
    return 0.5 * x * (1.0 + erf(x * 0.70710678))


def _rows(dtype: str, tensors: int = 2) -> int:
    """Return rows of COLUMNS so that all tensors together have 512 MB."""
    return (512 << 20) // tensors // (2 if dtype != "f32" else 4) // COLUMNS


def _problem(exprs: Sequence[Expr], inputs: Sequence[TensorSpec], dtypes: Sequence[str],
             ) -> Problem:
    shape = inputs[0].shape
    outputs = tuple(TensorSpec.dense(d, shape) for d in dtypes)
    return Problem("ELEMENTWISE", tuple(inputs), outputs, (("expr", ExprBundle(tuple(exprs))),))


def chain_cases() -> Iterator[Case]:
    """Yield chains over whole tensors."""
    import torch

    functional = torch.nn.functional
    single: tuple[tuple[str, Callable[[Expr], Expr], Peer], ...] = (
        ("relu", lambda x: maximum(x, 0.0), lambda t: torch.clamp(t[0], min=0, out=t[1])),
        ("gelu tanh", _gelu_tanh, lambda t: functional.gelu(t[0], approximate="tanh")),
        ("gelu erf", _gelu_erf, lambda t: functional.gelu(t[0])),
        ("silu", lambda x: x * _sigmoid(x), lambda t: functional.silu(t[0])),
    )
    for dtype in DTYPES:
        full = TensorSpec.dense(dtype, (_rows(dtype), COLUMNS))
        for name, build, peer in single:
            yield Case(f"{name} {dtype}", _problem([build(input(0))], [full], [dtype]), peer,
                       0.97 if "erf" in name else 0.98)
        yield Case(f"heavy {dtype}", _problem(
            [tanh(tanh(tanh(input(0)) + 1.0) * 2.0) * erf(input(0))], [full], [dtype]),
            lambda t: torch.tanh(torch.tanh(torch.tanh(t[0]) + 1.0) * 2.0) * torch.erf(t[0]), 0.5)
        three = TensorSpec.dense(dtype, (_rows(dtype, 3), COLUMNS))
        yield Case(f"x + y {dtype}", _problem([input(0) + input(1)], [three] * 2, [dtype]),
                   lambda t: torch.add(t[0], t[1], out=t[2]), 0.98)
        yield Case(f"silu(x) * y {dtype}", _problem(
            [input(0) * _sigmoid(input(0)) * input(1)], [three] * 2, [dtype]),
            lambda t: functional.silu(t[0]) * t[1], 0.98)
        five = TensorSpec.dense(dtype, (_rows(dtype, 5), COLUMNS))
        yield Case(f"4 inputs {dtype}", _problem(
            [maximum((input(0) + input(1)) * input(2) - input(3), 0.0)], [five] * 4, [dtype]),
            lambda t: torch.relu((t[0] + t[1]) * t[2] - t[3]), 0.98)
        yield Case(f"2 outputs {dtype}", _problem(
            [input(0) + 1.0, maximum(input(0), 0.0)], [three], [dtype] * 2),
            lambda t: t[0] + 1.0, 0.98)
    full = TensorSpec.dense("f32", (_rows("f32"), COLUMNS))
    yield Case("cast f32 to bf16", _problem([input(0)], [full], ["bf16"]),
               lambda t: t[1].copy_(t[0]), 0.98)


def broadcast_cases() -> Iterator[Case]:
    """Yield chains with operands that repeat along an axis, or lie in slices."""
    import torch

    for dtype in DTYPES:
        shape = (_rows(dtype), COLUMNS)
        full = TensorSpec.dense(dtype, shape)
        along = TensorSpec(dtype, shape, (0, 1))
        across = TensorSpec(dtype, shape, (1, 0))
        yield Case(f"x + bias[n] {dtype}", _problem([input(0) + input(1)], [full, along], [dtype]),
                   lambda t: torch.add(t[0], t[1], out=t[2]), 0.98)
        yield Case(f"x * scale[m] {dtype}",
                   _problem([input(0) * input(1)], [full, across], [dtype]),
                   lambda t: torch.mul(t[0], t[1], out=t[2]), 0.98)
        yield Case(f"x * a[n] + b[n] {dtype}", _problem(
            [input(0) * input(1) + input(2)], [full, along, along], [dtype]),
            lambda t: torch.addcmul(t[2], t[0], t[1], out=t[3]), 0.98)
        odd = TensorSpec(dtype, (shape[0], COLUMNS - 5), (COLUMNS - 5, 1))
        yield Case(f"relu odd columns {dtype}", _problem([maximum(input(0), 0.0)], [odd], [dtype]),
                   lambda t: torch.clamp(t[0], min=0, out=t[1]), 0.98)
        part = TensorSpec(dtype, (shape[0], COLUMNS - 8), (COLUMNS, 1))
        yield Case(f"relu of a slice {dtype}", _problem([maximum(input(0), 0.0)], [part], [dtype]),
                   lambda t: torch.clamp(t[0], min=0, out=t[1]), 0.97)


def transposed_cases() -> Iterator[Case]:
    """Yield transposes, alone and in chains."""
    import torch

    for dtype in DTYPES:
        m, n = (8192, 16384) if dtype != "f32" else (8192, 8192)
        turned = TensorSpec(dtype, (n, m), (1, n))
        yield Case(f"transpose {dtype} {m}x{n}", _problem([input(0)], [turned], [dtype]),
                   lambda t: t[1].copy_(t[0]), 0.94)
        plain = TensorSpec.dense(dtype, (n, m))
        yield Case(f"relu(x.t + y) {dtype} {m}x{n}", _problem(
            [maximum(input(0) + input(1), 0.0)], [turned, plain], [dtype]),
            lambda t: torch.relu(t[0] + t[1]), 0.94)


SECTIONS: dict[str, Callable[[], Iterator[Case]]] = {
    "chains": chain_cases,
    "broadcast": broadcast_cases,
    "transposed": transposed_cases,
}
