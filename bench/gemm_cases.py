"""Matrix products to time: shapes, problems, and what a torch user would call instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ge2.compiler.opdefs.gemm_epilogue import gemm_epilogue
from ge2.problem import Problem, TensorSpec

Tensors = list[Any]
Peer = Callable[[Tensors], object]
"""Takes torch tensors in the problem's order: A, B, bias, C, Y, with their shapes and strides."""

ANCHORS = (
    (256, 256, 256), (512, 512, 512), (1000, 1000, 1000), (1024, 1024, 1024), (2048, 2048, 2048),
    (4096, 4096, 4096), (8192, 8192, 8192), (777, 333, 555), (8192, 1024, 256), (4096, 384, 1536),
    (4096, 1536, 384), (4096, 14336, 4096), (4096, 4096, 14336), (128, 4096, 4096),
    (16, 4096, 4096), (64, 14336, 4096), (1, 4096, 14336), (1, 14336, 4096))
LARGE = ((8192,) * 3, (4096,) * 3, (2048,) * 3, (1024,) * 3)
# None of these was looked at when rules and costs were set.
UNSEEN = (
    (320, 640, 2048), (600, 5120, 1280), (1536, 1536, 6144), (1792, 3584, 2304), (2304, 768, 3072),
    (3000, 3000, 3000), (3328, 2560, 1024), (5000, 2048, 512), (5120, 5120, 5120),
    (6144, 6144, 2048), (7168, 896, 4096), (9216, 2304, 768), (10240, 1280, 1280),
    (12288, 4096, 1024), (2560, 9728, 2560), (448, 28672, 4096))


@dataclass(frozen=True)
class GemmCase:
    """A product on one shape.

    Attributes:
        name: for the table.
        problem: what ge2 solves.
        flops: of the product.
        peers: name -> what torch does instead.
        plain: the peer without any epilogue, shown but not competing where others are.
    """

    name: str
    problem: Problem
    flops: float
    peers: Mapping[str, Peer] = field(default_factory=dict)
    plain: str = "mm"

    @property
    def rivals(self) -> list[str]:
        """The peers that do the same work."""
        return [name for name in self.peers if name != self.plain] or list(self.peers)


def gemm_case(shape: tuple[int, int, int], dtype: str, act: str, *, trans_a: bool = False,
              trans_b: bool = True, bias: bool = True, f32: str = "ieee") -> GemmCase:
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
    problem = Problem(
        "GEMM_BIAS_ACT",
        (TensorSpec.dense(dtype, (k, m) if trans_a else (m, k)),
         TensorSpec.dense(dtype, (n, k) if trans_b else (k, n)),
         TensorSpec(dtype, (m, n), (0, 1)) if bias else None, None),
        (TensorSpec.dense(dtype, (m, n)),), tuple(sorted(attrs.items())))
    layout = ("T" if trans_a else "N") + ("T" if trans_b else "N")
    name = f"{dtype} {m}x{n}x{k} {layout}{' bias' if bias else ''} {act}"
    peers = _peers(act, bias, trans_a, trans_b)
    return GemmCase(name if f32 == "ieee" else f"{name} {f32}", problem, 2.0 * m * n * k, peers)


def _peers(act: str, bias: bool, trans_a: bool, trans_b: bool) -> dict[str, Peer]:
    import torch

    def operands(t: Tensors) -> tuple[Any, Any]:
        return (t[0].t() if trans_a else t[0]), (t[1].t() if trans_b else t[1])

    def mm(t: Tensors) -> object:
        return torch.mm(*operands(t), out=t[-1])

    def addmm(t: Tensors) -> object:
        y = torch.addmm(t[2][0], *operands(t), out=t[-1])
        return y if act == "none" else functions[act](y)

    def fused(t: Tensors) -> object:
        return torch.ops.aten._addmm_activation.out(t[2][0], *operands(t), use_gelu=act != "relu",
                                                    out=t[-1])

    functions: dict[str, Callable[[Any], Any]] = {
        "relu": torch.relu_,
        "gelu": torch.nn.functional.gelu,
        "gelu_tanh": lambda y: torch.nn.functional.gelu(y, approximate="tanh"),
    }
    if not bias:
        return {"mm": mm}
    found: dict[str, Peer] = {"mm": mm, "addmm": addmm}
    if act in ("relu", "gelu_tanh"):
        found["_addmm_activation"] = fused
    return found


def compiled_peer(case: GemmCase) -> Peer:
    """Return what torch.compile(mode="max-autotune") makes of linear + activation."""
    import torch

    act = str(case.problem.attr_map["act"])
    function = {"relu": torch.relu, "gelu": torch.nn.functional.gelu, "none": lambda y: y,
                "gelu_tanh": lambda y: torch.nn.functional.gelu(y, approximate="tanh")}[act]
    torch._dynamo.reset()
    call = torch.compile(lambda x, w, b: function(torch.nn.functional.linear(x, w, b)),
                         mode="max-autotune-no-cudagraphs", dynamic=False)
    return lambda t: call(t[0], t[1], t[2][0])


def anchors(dtype: str, act: str) -> Iterator[GemmCase]:
    """Yield the shapes that peers were measured on."""
    for shape in ANCHORS:
        yield gemm_case(shape, dtype, act)
