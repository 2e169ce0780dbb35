"""The problems of bench.rows: what ge2 solves, what torch does instead, targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from ge2.compiler.ir.expr import exp, log, maximum, rsqrt
from ge2.compiler.ir.nodes import Node
from ge2.compiler.ir.row import RowOp
from ge2.compiler.ir.row_gradient import gradient
from ge2.compiler.ir.row_ops import build_row_op
from ge2.compiler.kernels.lower import lower
from ge2.problem import Problem, TensorSpec

from .side_by_side import Case, Peer, Tensors
from .targets import Goal

BYTES = 256 << 20
LENGTHS = (128, 512, 1024, 4096, 16384, 65536, 262144, 1 << 20)
# None of these was looked at when rules and costs were set.
UNSEEN = (200, 640, 2560, 7168, 24576, 100000)
DTYPES = ("bf16", "f32")
BETTER = "rows, better of torch eager and compile"
CACHED = "inputs in the L2 cache, better of torch eager and compile"


def size_of(dtype: str) -> int:
    """Return the bytes of an element of DTYPES."""
    return 4 if dtype == "f32" else 2


def copy_goal(n: int, dtype: str) -> Goal:
    """Return the share of a copy that rows of n elements should reach."""
    if n <= 16384:
        return Goal("rows of 128 to 16,384, copy", "copy", 0.96)
    if n <= 262144:
        return Goal("rows of 65,536 and 262,144, copy", "copy", 0.92)
    return Goal(f"rows of 1,048,576 {dtype}, copy", "copy", 0.84 if dtype == "f32" else 0.87)


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


def row_case(name: str, problem: Problem, peer: Peer | None, *goals: Goal, **rest: Any) -> Case:
    """Return a case whose peer torch.compile can take, too."""
    def compiled() -> Peer:
        import torch

        return torch.compile(peer, dynamic=False)

    return Case(name, problem, {"torch": peer} if peer else {},
                compiled={"compile": compiled} if peer else {}, goals=goals, **rest)


def softmax_peer(t: Tensors) -> Any:
    """Softmax over the last axis into the given output."""
    import torch

    return torch.ops.aten._softmax.out(t[0], -1, False, out=t[1])


def layer_norm_peer(t: Tensors) -> Any:
    """Layer norm over the last axis; the weights are its last row."""
    import torch

    rows = [w[(0,) * (w.dim() - 1)] for w in t[1:3]]
    return torch.nn.functional.layer_norm(t[0], (t[0].shape[-1],), *rows)


def rms_norm_peer(t: Tensors) -> Any:
    """RMS norm over the last axis."""
    import torch

    return torch.nn.functional.rms_norm(t[0], (t[0].shape[-1],), t[1][(0,) * (t[1].dim() - 1)],
                                        1e-5)


MAIN: dict[str, Peer] = {
    "softmax": softmax_peer, "layer_norm": layer_norm_peer, "rms_norm": rms_norm_peer}


def main_cases() -> Iterator[Case]:
    """Yield softmax and norms over 256 MB for each length and dtype."""
    for name, peer in MAIN.items():
        for dtype in DTYPES:
            for n in LENGTHS:
                rows = max(BYTES // size_of(dtype) // n, 1)
                yield row_case(f"{name} {dtype} {rows}x{n}",
                               problem_of(operator(name, dtype), dtype, (rows, n)), peer,
                               copy_goal(n, dtype),
                               Goal(f"{BETTER}: no lower bound", "peers", 0.98, bound=True))


def cached_cases() -> Iterator[Case]:
    """Yield inputs that stay in the L2 cache."""
    for rows, n in ((333, 1000), (4096, 1024), (1024, 4096), (64, 8192)):
        for name, peer in MAIN.items():
            for dtype in DTYPES:
                yield row_case(f"{name} {dtype} {rows}x{n}",
                               problem_of(operator(name, dtype), dtype, (rows, n)), peer,
                               Goal(CACHED, "peers", 1.4), hot=True)


def odd_cases() -> Iterator[Case]:
    """Yield lengths that are no multiple of anything, and rows apart by an odd number of elements,
    each beside its aligned neighbour; speed is in bytes."""
    for name in ("softmax", "layer_norm"):
        for dtype in DTYPES:
            op = operator(name, dtype)
            for n, near in ((1000, 1024), (1001, 1024), (4099, 4096), (50257, 50304),
                            (128255, 128256)):
                rows, others = (BYTES // size_of(dtype) // x for x in (n, near))
                text = "odd lengths up to 64k" if n <= 65536 else "odd lengths beyond 64k"
                yield _beside_aligned(f"{name} {dtype} {rows}x{n}",
                                      problem_of(op, dtype, (rows, n)),
                                      problem_of(op, dtype, (others, near)),
                                      rows * n / (others * near),
                                      f"{text}, the aligned neighbour", MAIN[name])
            rows = BYTES // size_of(dtype) // 4096
            apart = TensorSpec(dtype, (rows, 4096), (4097, 1))
            extras = [TensorSpec(dtype, (rows, 4096), (0, 1))] * op.n_extras
            yield _beside_aligned(f"{name} {dtype} {rows}x4096 unaligned",
                                  problem_of(op, dtype, (rows, 4096), operands=[apart, *extras]),
                                  problem_of(op, dtype, (rows, 4096)), 1.0,
                                  "unaligned rows, aligned ones", MAIN[name])


def _beside_aligned(name: str, problem: Problem, neighbour: Problem, scale: float, text: str,
                    peer: Peer) -> Case:
    return row_case(name, problem, peer, Goal(text, "aligned", 0.9, scale=scale),
                    beside={"aligned": neighbour})


def _sum_peer(t: Tensors) -> Any:
    import torch

    return torch.sum(t[0], 1, out=t[1])


def total_cases() -> Iterator[Case]:
    """Yield sums of everything."""
    for power in (30, 24, 20):
        yield row_case(f"sum f32 2^{power}",
                       problem_of(build_row_op("sum"), "f32", (1, 1 << power)), _sum_peer)


def reduction_cases() -> Iterator[Case]:
    """Yield sums of columns beside sums of rows, and other reductions of rows."""
    for dtype in DTYPES:
        for n in (256, 4096, 16384):
            rows = BYTES // size_of(dtype) // n
            for op, peer in (("sum", _sum_peer), ("max", lambda t: t[0].amax(1))):
                columns = TensorSpec(dtype, (n, rows), (1, n))
                row = build_row_op(op)
                yield row_case(
                    f"column {op} {dtype} {rows}x{n}",
                    problem_of(row, dtype, (n, rows), operands=[columns]), peer,
                    Goal(f"column {op}, row {op}", "rows", 0.95),
                    beside={"rows": problem_of(row, dtype, (rows, n))})
    for op, peer in (("argmax", lambda t: t[0].argmax(1)), ("logsumexp",
                     lambda t: t[0].logsumexp(1)), ("max", lambda t: t[0].amax(1))):
        yield row_case(f"{op} bf16 32768x4096", problem_of(
            build_row_op(op), "bf16", (32768, 4096), ["i64" if op == "argmax" else "bf16"]),
            peer, Goal("other reductions of rows, copy", "copy", 0.92),
            error=error_of(op))


def error_of(op: str) -> float:
    """Return the error allowed to a reduction; of equal maxima torch may name another."""
    return 1.0 if op == "argmax" else 8e-3


def fused_cases() -> Iterator[Case]:
    """Yield operators with several operands or results, each datum read and written once."""
    goal = Goal("fused row operators, copy", "copy", 0.92)
    for dtype in DTYPES:
        rounding = dtype if dtype != "f32" else ""
        for n in (1024, 4096, 16384):
            rows = BYTES // 2 // size_of(dtype) // n
            shape = (rows, n)
            full, mask = TensorSpec.dense(dtype, shape), TensorSpec.dense("bool", shape)
            label = TensorSpec("i64", shape, (1, 0))
            masked = lower(Node("MASKED_SOFTMAX", "y", ("x", "m"), ("y",), {"axis": -1}),
                           {"x": full, "m": mask, "y": full})
            named: dict[str, tuple[Problem, Peer]] = {
                "add_rms_norm": (problem_of(build_row_op("add_rms_norm", rounding=rounding),
                                            dtype, shape), _added(rms_norm_peer)),
                "add_layer_norm": (problem_of(build_row_op("add_layer_norm", rounding=rounding),
                                              dtype, shape), _added(layer_norm_peer)),
                "masked_softmax": (masked, _masked_softmax),
                "quantize_rows": (problem_of(build_row_op("quantize_rows"), dtype, shape,
                                             ["i8", "f32"]), _quantize),
                "cross_entropy": (problem_of(build_row_op("cross_entropy"), dtype, shape,
                                             ["f32", dtype], [full, label]), _cross_entropy),
                "softmax_grad": (problem_of(build_row_op("softmax_grad"), dtype, shape),
                                 _softmax_grad),
                "layer_norm grad": (problem_of(gradient(build_row_op(
                    "layer_norm", scale=False, bias=False)), dtype, shape), _layer_norm_grad),
                "rms_norm grad": (problem_of(gradient(build_row_op("rms_norm", scale=False)),
                                             dtype, shape), _rms_norm_grad),
            }
            for name, (problem, peer) in named.items():
                yield row_case(f"{name} {dtype} {rows}x{n}", problem, peer, goal)


def _added(norm: Peer) -> Peer:
    def call(t: Tensors) -> Any:
        total = t[0] + t[1]
        return total, norm([total, *t[2:]])

    return call


def _masked_softmax(t: Tensors) -> Any:
    return t[0].masked_fill(~t[1], -float("inf")).softmax(-1)


def _quantize(t: Tensors) -> Any:
    import torch

    peak = t[0].float().abs().amax(-1, keepdim=True)
    return torch.round(t[0].float() * (127.0 / peak)).to(torch.int8), peak[:, 0] / 127.0


def _cross_entropy(t: Tensors) -> Any:
    import torch

    x, label = t[0].float(), t[1][:, :1]
    loss = x.logsumexp(-1) - x.gather(1, label)[:, 0]
    return loss, x.softmax(-1).scatter_add_(1, label, torch.full_like(loss[:, None], -1.0))


def _softmax_grad(t: Tensors) -> Any:
    import torch

    return torch._softmax_backward_data(t[1], t[0], -1, t[0].dtype)


def _layer_norm_grad(t: Tensors) -> Any:
    """torch has the statistics of the forward pass; they are part of its time here."""
    import torch

    shape = (t[0].shape[-1],)
    _, mean, deviation = torch.native_layer_norm(t[0], shape, None, None, 1e-5)
    return torch.ops.aten.native_layer_norm_backward(
        t[1], t[0], shape, mean, deviation, None, None, [True, False, False])[0]


def _rms_norm_grad(t: Tensors) -> Any:
    x, dy = t[0].float(), t[1].float()
    scale = (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    return scale * (dy - x * scale.square() * (x * dy).mean(-1, keepdim=True))


@cache
def user_rows() -> dict[str, Callable[[str], RowOp]]:
    """Declare operators as users do, of what built-in ones compute as well."""
    import ge2
    from ge2.compiler.opdefs.user_rows import USER_ROWS

    @ge2.row_operator
    class BENCH_RMS_NORM:
        """x over its root mean square, times a weight."""

        state = {"squares": 0.0}  # noqa: RUF012
        extras = ("weight",)

        def update(s, r):  # type: ignore[no-untyped-def]
            return [s.squares + r.x * r.x]

        def merge(a, b):  # type: ignore[no-untyped-def]
            return [a.squares + b.squares]

        def finish(s, r):  # type: ignore[no-untyped-def]
            return r.x * rsqrt(s.squares / r.n + 1e-5) * r.extras[0]

    @ge2.row_operator
    class BENCH_LOGSUMEXP:
        """log(sum(exp(x))) without overflow."""

        state = {"m": -1e30, "s": 0.0}  # noqa: RUF012
        outputs = ("scalar",)

        def single(r):  # type: ignore[no-untyped-def]
            return r.x, r.x * 0.0 + 1.0

        def merge(a, b):  # type: ignore[no-untyped-def]
            m = maximum(a.m, b.m)
            return m, a.s * exp(a.m - m) + b.s * exp(b.m - m)

        def finish(s, r):  # type: ignore[no-untyped-def]
            return s.m + log(s.s)

    return {"rms_norm": USER_ROWS["BENCH_RMS_NORM"], "logsumexp": USER_ROWS["BENCH_LOGSUMEXP"]}


def user_cases() -> Iterator[Case]:
    """Yield user-declared operators beside the built-in ones that compute the same."""
    peers: dict[str, Peer] = {"rms_norm": rms_norm_peer, "logsumexp": lambda t: t[0].logsumexp(1)}
    for name, declared in user_rows().items():
        for dtype in DTYPES:
            for n in (1024, 16384, 65536):
                rows = BYTES // size_of(dtype) // n
                yield row_case(
                    f"user {name} {dtype} {rows}x{n}",
                    problem_of(declared("f32"), dtype, (rows, n)), peers[name],
                    Goal("a user-declared row operator, the built-in one", "built-in", 0.98),
                    beside={"built-in": problem_of(build_row_op(name), dtype, (rows, n))})


def unseen_cases() -> Iterator[Case]:
    """Yield lengths that no rule was made for, with every variant."""
    for name, dtype in (("softmax", "bf16"), ("layer_norm", "f32"), ("rms_norm", "bf16")):
        for n in UNSEEN:
            rows = BYTES // size_of(dtype) // n
            yield row_case(f"{name} {dtype} {rows}x{n}",
                           problem_of(operator(name, dtype), dtype, (rows, n)), MAIN[name],
                           every=True, regimes=("quick",))
