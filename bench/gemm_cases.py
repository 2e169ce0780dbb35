"""Matrix products to time: shapes, problems, what a torch user would call instead, targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ge2.compiler.opdefs.gemm_epilogue import gemm_epilogue
from ge2.problem import Problem, TensorSpec

from .side_by_side import Case, Peer, Tensors
from .targets import Goal

Shape = tuple[int, int, int]

ANCHORS = (
    (256, 256, 256), (512, 512, 512), (1000, 1000, 1000), (1024, 1024, 1024), (2048, 2048, 2048),
    (4096, 4096, 4096), (8192, 8192, 8192), (777, 333, 555), (8192, 1024, 256), (4096, 384, 1536),
    (4096, 1536, 384), (4096, 14336, 4096), (4096, 4096, 14336), (128, 4096, 4096),
    (16, 4096, 4096), (64, 14336, 4096), (1, 4096, 14336), (1, 14336, 4096))
# None of these was looked at when rules and costs were set.
UNSEEN = (
    (320, 640, 2048), (600, 5120, 1280), (1536, 1536, 6144), (1792, 3584, 2304), (2304, 768, 3072),
    (3000, 3000, 3000), (3328, 2560, 1024), (5000, 2048, 512), (5120, 5120, 5120),
    (6144, 6144, 2048), (7168, 896, 4096), (9216, 2304, 768), (10240, 1280, 1280),
    (12288, 4096, 1024), (2560, 9728, 2560), (448, 28672, 4096))
PEERS = "18 shapes, bias and activation, best torch call"
# Side -> wanted ratios to plain cuBLAS: sustained, in bursts.
PLAIN = {8192: (1.05, 1.01), 4096: (1.01, 0.98)}
SQUARE = {2048: 1.04, 1024: 1.06}


def gemm_problem(shape: Shape, dtype: str, act: str, *, trans_a: bool = False,
                 trans_b: bool = True, bias: bool = True, f32: str = "ieee") -> Problem:
    """Return Y = act(op(A) op(B) + bias).

    Args:
        shape: m, n, k.
        dtype, act: of everything; torch's fused GELU is the tanh form.
        trans_a, trans_b: A stored [K, M], B stored [N, K] (as linear layers store weights).
        bias: one per column.
        f32: how f32 is multiplied.
    """
    m, n, k = shape
    attrs = {"trans_a": trans_a, "trans_b": trans_b, "alpha": 1.0, "beta": 1.0, "act": act,
             "leaky_slope": 0.01, "f32": f32,
             "epilogue": gemm_epilogue(dtype, (dtype if bias else None, None), 1.0, 1.0, act, 0.01)}
    return Problem(
        "GEMM_BIAS_ACT",
        (TensorSpec.dense(dtype, (k, m) if trans_a else (m, k)),
         TensorSpec.dense(dtype, (n, k) if trans_b else (k, n)),
         TensorSpec(dtype, (m, n), (0, 1)) if bias else None, None),
        (TensorSpec.dense(dtype, (m, n)),), tuple(sorted(attrs.items())))


def gemm_case(shape: Shape, dtype: str, act: str, *, trans_a: bool = False, trans_b: bool = True,
              bias: bool = True, f32: str = "ieee", plain: bool = False, **rest: Any) -> Case:
    """Return a product beside torch's ways to compute the same; arguments as for gemm_problem.

    Args:
        plain: time torch's bare product as well, named "mm"; it is a peer where there is no bias.
        rest: further attributes of the case.
    """
    m, n, k = shape
    layout = ("T" if trans_a else "N") + ("T" if trans_b else "N")
    name = f"{dtype} {m}x{n}x{k} {layout}{' bias' if bias else ''} {act}"
    peers = _peers(act, bias, trans_a, trans_b)
    return Case(
        name if f32 == "ieee" else f"{name} {f32}",
        gemm_problem(shape, dtype, act, trans_a=trans_a, trans_b=trans_b, bias=bias, f32=f32),
        peers, {"mm": _mm(trans_a, trans_b)} if plain and bias else {},
        {"compile": lambda: _compiled(act, trans_a, trans_b, bias)}, flops=2.0 * m * n * k,
        **{"regimes": ("sustained",), **rest})


def _mm(trans_a: bool, trans_b: bool) -> Peer:
    import torch

    return lambda t: torch.mm(t[0].t() if trans_a else t[0], t[1].t() if trans_b else t[1],
                              out=t[-1])


def _activations() -> Mapping[str, Callable[[Any], Any]]:
    import torch

    return {"none": lambda y: y, "relu": torch.relu_,
            "gelu": torch.nn.functional.gelu,
            "gelu_tanh": lambda y: torch.nn.functional.gelu(y, approximate="tanh")}


def _peers(act: str, bias: bool, trans_a: bool, trans_b: bool) -> dict[str, Peer]:
    import torch

    activate = _activations()[act]

    def operands(t: Tensors) -> tuple[Any, Any]:
        return (t[0].t() if trans_a else t[0]), (t[1].t() if trans_b else t[1])

    def linear(t: Tensors) -> object:
        x, w = operands(t)
        return activate(torch.nn.functional.linear(x, w.t(), t[2][0] if bias else None))

    def addmm(t: Tensors) -> object:
        return activate(torch.addmm(t[2][0], *operands(t), out=t[-1]))

    def fused(t: Tensors) -> object:
        return torch.ops.aten._addmm_activation.out(t[2][0], *operands(t), use_gelu=act != "relu",
                                                    out=t[-1])

    if not bias:
        return {"mm": _mm(trans_a, trans_b), "linear": linear}
    found: dict[str, Peer] = {"addmm": addmm, "linear": linear}
    if act in ("relu", "gelu_tanh"):
        found["_addmm_activation"] = fused
    return found


def _compiled(act: str, trans_a: bool, trans_b: bool, bias: bool) -> Peer:
    """Return what torch.compile(mode="max-autotune") makes of linear + activation."""
    import torch

    function = {**_activations(), "relu": torch.relu}[act]
    call = torch.compile(lambda x, w, b: function(torch.nn.functional.linear(x, w, b)),
                         mode="max-autotune-no-cudagraphs", dynamic=False)
    return lambda t: call(t[0].t() if trans_a else t[0], t[1] if trans_b else t[1].t(),
                          t[2][0] if bias else None)


def anchors(dtype: str, act: str) -> Iterator[Case]:
    """Yield the shapes that peers were measured on."""
    for shape in ANCHORS:
        yield gemm_case(shape, dtype, act,
                        goals=(Goal(f"{PEERS}: no lower bound", "peers", 0.98, bound=True),))


def large() -> Iterator[Case]:
    """Yield square products against plain cuBLAS, sustained and in bursts, each with its tanh GELU;
    and exact-erf GELU beside its own tanh form."""
    for side, goals in PLAIN.items():
        shape = (side,) * 3
        text = f"{side}^3 bf16 + bias + gelu (tanh), plain cuBLAS mm"
        yield gemm_case(shape, "bf16", "gelu_tanh", plain=True, regimes=("sustained", "burst"),
                        goals=tuple(Goal(f"{text}, {regime}", "mm", least, regime)
                                    for regime, least in zip(("sustained", "burst"), goals,
                                                             strict=True)))
    for side in (*PLAIN, *SQUARE):
        shape = (side,) * 3
        yield gemm_case(shape, "bf16", "gelu",
                        beside={"own tanh": gemm_problem(shape, "bf16", "gelu_tanh")},
                        goals=(Goal("exact-erf GELU, its own tanh GELU", "own tanh", 0.97),))
    for side, least in SQUARE.items():
        yield gemm_case((side,) * 3, "bf16", "none", bias=False,
                        goals=(Goal(f"{side}^3 bf16, cuBLAS", "peers", least),))


def layouts() -> Iterator[Case]:
    """Yield all transpose combinations."""
    for dtype in ("bf16", "f16"):
        for trans_a in (False, True):
            for trans_b in (False, True):
                yield gemm_case((4096, 4096, 4096), dtype, "relu", trans_a=trans_a,
                                trans_b=trans_b, goals=(Goal("4096^3 in all layouts, best torch "
                                                             "call", "peers", 1.0),))


def few_rows() -> Iterator[Case]:
    """Yield a few hundred rows against square weights."""
    for m in (128, 256, 512):
        for act in ("none", "gelu_tanh"):
            yield gemm_case((m, 4096, 4096), "bf16", act, bias=act != "none", goals=(
                Goal("M 128, 256, 512 x 4096 x 4096, cuBLAS", "peers", 1.05),))


def f32_weights() -> Iterator[Case]:
    """Yield f32x3 on the weights of an encoder, for 32 and 256 sentences, beside the same product
    with an operand that is split in every call."""
    for rows in (4096, 32768):
        for n, k in ((1152, 384), (384, 384), (1536, 384), (384, 1536)):
            case = gemm_case((rows, n, k), "f32", "none", f32="x3", error=1e-5)
            yield replace(case, problem=replace(case.problem, constant=(1,)),
                          beside={"split in every call": case.problem})


def f32_modes() -> Iterator[Case]:
    """Yield f32 on tensor cores against cuBLAS f32 or tf32."""
    for side in (2048, 4096, 8192):
        least = 1.9 if side == 2048 else 2.3
        yield gemm_case((side,) * 3, "f32", "none", bias=False, f32="x3", error=1e-5, goals=(
            Goal(f"f32x3 {'at 2048^3' if side == 2048 else 'from 4096^3'}, cuBLAS f32", "peers",
                 least),))
        yield gemm_case((side,) * 3, "f32", "none", bias=False, f32="tf32", goals=(
            Goal("tf32, cuBLAS tf32", "peers", 1.0),))
    for trans_a, trans_b in ((False, False), (True, True), (True, False)):
        yield gemm_case((4096,) * 3, "f32", "none", trans_a=trans_a, trans_b=trans_b, bias=False,
                        f32="tf32", goals=(Goal("tf32 in other layouts, cuBLAS tf32", "peers",
                                                0.9),))


def unseen() -> Iterator[Case]:
    """Yield shapes that no rule was made for, with every variant."""
    for shape in UNSEEN:
        yield gemm_case(shape, "bf16", "relu", every=True, regimes=("quick",))
