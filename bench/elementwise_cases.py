"""The problems of bench.elementwise: what ge2 solves, what torch does instead, targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ge2.compiler.ir.expr import Expr, ExprBundle, const, erf, exp, input, maximum, tanh
from ge2.problem import Problem, TensorSpec

from .row_cases import row_case
from .side_by_side import Case, Peer
from .targets import Goal

DTYPES = ("bf16", "f32")
COLUMNS = 8192
# Bytes of chains that no rule was made for.
UNSEEN = (20 << 20, 90 << 20, 700 << 20)
CHAIN = Goal("elementwise chains, copy", "copy", 0.98)
TURNED = Goal("transposes and chains with one transposed input, copy", "copy", 0.94)


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
    single: tuple[tuple[str, Callable[[Expr], Expr], Peer, Goal], ...] = (
        ("relu", lambda x: maximum(x, 0.0), lambda t: torch.clamp(t[0], min=0, out=t[1]), CHAIN),
        ("gelu tanh", _gelu_tanh, lambda t: functional.gelu(t[0], approximate="tanh"), CHAIN),
        ("gelu erf", _gelu_erf, lambda t: functional.gelu(t[0]),
         Goal("erf GELU, copy", "copy", 0.97)),
        ("silu", lambda x: x * _sigmoid(x), lambda t: functional.silu(t[0]), CHAIN),
    )
    for dtype in DTYPES:
        full = TensorSpec.dense(dtype, (_rows(dtype), COLUMNS))
        for name, build, peer, goal in single:
            yield row_case(f"{name} {dtype}", _problem([build(input(0))], [full], [dtype]), peer,
                           goal)
        three = TensorSpec.dense(dtype, (_rows(dtype, 3), COLUMNS))
        yield row_case(f"x + y {dtype}", _problem([input(0) + input(1)], [three] * 2, [dtype]),
                       lambda t: torch.add(t[0], t[1], out=t[2]), CHAIN)
        yield row_case(f"silu(x) * y {dtype}", _problem(
            [input(0) * _sigmoid(input(0)) * input(1)], [three] * 2, [dtype]),
            lambda t: functional.silu(t[0]) * t[1], CHAIN)
        five = TensorSpec.dense(dtype, (_rows(dtype, 5), COLUMNS))
        yield row_case(f"4 inputs {dtype}", _problem(
            [maximum((input(0) + input(1)) * input(2) - input(3), 0.0)], [five] * 4, [dtype]),
            lambda t: torch.relu((t[0] + t[1]) * t[2] - t[3]), CHAIN)
        yield row_case(f"2 outputs {dtype}", _problem(
            [input(0) + 1.0, maximum(input(0), 0.0)], [three], [dtype] * 2),
            lambda t: (t[0] + 1.0, torch.relu(t[0])), CHAIN)
    full = TensorSpec.dense("f32", (_rows("f32"), COLUMNS))
    yield row_case("cast f32 to bf16", _problem([input(0)], [full], ["bf16"]),
                   lambda t: t[1].copy_(t[0]), CHAIN)


def heavy_cases() -> Iterator[Case]:
    """Yield chains of more arithmetic than memory has time for. Their limit is the rate at which
    instructions are issued: the same chain on one row that stays in the cache, which still writes
    all results."""
    import torch

    for dtype in DTYPES:
        shape = (_rows(dtype), COLUMNS)
        full, row = TensorSpec.dense(dtype, shape), TensorSpec(dtype, shape, (0, 1))
        chain = tanh(tanh(tanh(input(0)) + 1.0) * 2.0) * erf(input(0))
        yield row_case(
            f"heavy {dtype}", _problem([chain], [full], [dtype]),
            lambda t: torch.tanh(torch.tanh(torch.tanh(t[0]) + 1.0) * 2.0) * torch.erf(t[0]),
            Goal("heavier chains, their arithmetic alone", "from cache", 0.9),
            beside={"from cache": _problem([chain], [row], [dtype])})


def unseen_cases() -> Iterator[Case]:
    """Yield sizes that no rule was made for, with every variant."""
    import torch

    for dtype in DTYPES:
        for nbytes in UNSEEN:
            columns = 3000
            shape = (nbytes // 2 // (2 if dtype != "f32" else 4) // columns, columns)
            full, along = TensorSpec.dense(dtype, shape), TensorSpec(dtype, shape, (0, 1))
            for name, chain, inputs, peer in (
                    ("x * 2", input(0) * 2.0, [full], lambda t: t[0] * 2.0),
                    ("gelu erf", _gelu_erf(input(0)), [full],
                     lambda t: torch.nn.functional.gelu(t[0])),
                    ("x * y[n]", input(0) * input(1), [full, along], lambda t: t[0] * t[1])):
                yield row_case(f"{name} {dtype} {shape[0]}x{columns}",
                               _problem([chain], inputs, [dtype]), peer, every=True,
                               regimes=("quick",))


def broadcast_cases() -> Iterator[Case]:
    """Yield chains with operands that repeat along an axis, or lie in slices."""
    import torch

    for dtype in DTYPES:
        shape = (_rows(dtype), COLUMNS)
        full = TensorSpec.dense(dtype, shape)
        along = TensorSpec(dtype, shape, (0, 1))
        across = TensorSpec(dtype, shape, (1, 0))
        yield row_case(f"x + bias[n] {dtype}",
                       _problem([input(0) + input(1)], [full, along], [dtype]),
                   lambda t: torch.add(t[0], t[1], out=t[2]), CHAIN)
        yield row_case(f"x * scale[m] {dtype}",
                   _problem([input(0) * input(1)], [full, across], [dtype]),
                   lambda t: torch.mul(t[0], t[1], out=t[2]), CHAIN)
        yield row_case(f"x * a[n] + b[n] {dtype}", _problem(
            [input(0) * input(1) + input(2)], [full, along, along], [dtype]),
            lambda t: torch.addcmul(t[2], t[0], t[1], out=t[3]), CHAIN)
        odd = TensorSpec(dtype, (shape[0], COLUMNS - 5), (COLUMNS - 5, 1))
        yield row_case(f"relu odd columns {dtype}",
                       _problem([maximum(input(0), 0.0)], [odd], [dtype]),
                   lambda t: torch.clamp(t[0], min=0, out=t[1]), CHAIN)
        part = TensorSpec(dtype, (shape[0], COLUMNS - 8), (COLUMNS, 1))
        yield row_case(f"relu of a slice {dtype}",
                       _problem([maximum(input(0), 0.0)], [part], [dtype]),
                   lambda t: torch.clamp(t[0], min=0, out=t[1]), CHAIN)


def transposed_cases() -> Iterator[Case]:
    """Yield transposes, alone and in chains."""
    import torch

    for dtype in DTYPES:
        m, n = (8192, 16384) if dtype != "f32" else (8192, 8192)
        turned = TensorSpec(dtype, (n, m), (1, n))
        yield row_case(f"transpose {dtype} {m}x{n}", _problem([input(0)], [turned], [dtype]),
                   lambda t: t[1].copy_(t[0]), TURNED)
        plain = TensorSpec.dense(dtype, (n, m))
        yield row_case(f"relu(x.t + y) {dtype} {m}x{n}", _problem(
            [maximum(input(0) + input(1), 0.0)], [turned, plain], [dtype]),
            lambda t: torch.relu(t[0] + t[1]), TURNED)
