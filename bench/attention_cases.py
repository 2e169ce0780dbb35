"""Attention calls to time: shapes, problems, what a torch user would call instead, targets.

Tensors come in the problem's order: q, k, v, mask, ..., y.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ge2.compiler.ir.expr import ExprBundle
from ge2.launch.attention_examples import alibi, attention_problem, slopes, softcap
from ge2.launch.attention_grad import gradient_problem
from ge2.problem import TensorSpec

from .side_by_side import Case, Peer, Tensors
from .targets import Goal

Shape = tuple[int, int, int, int]
"""Samples, heads, queries, elements of a head."""
BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION",
            "efficient": "EFFICIENT_ATTENTION"}
SOFTCAP = 20.0


def case(shape: Shape, least: float, text: str, *, of: str = "peers", dtype: str = "bf16",
         causal: bool = False, groups: int = 0, keys: int = 0, mask: bool = False,
         bursts: bool = False) -> Case:
    """Return softmax(q k^T / sqrt(d)) v beside torch's fused kernels.

    Args:
        shape: of q.
        least, text, of: see Goal.
        bursts: measure in bursts, too, where it must be as fast.
        dtype, causal, groups, keys: as for attention_problem.
        mask: add a mask [samples, 1, queries, keys] to the scores.
    """
    batch, heads, queries, size = shape
    keys = keys or queries
    problem = attention_problem(
        dtype, shape, groups=groups, keys=keys, causal=causal, mask=dtype if mask else "",
        mask_shape=(batch, 1, queries, keys) if mask else ())
    flops = 4.0 * batch * heads * queries * keys * size * (0.5 if causal else 1.0)
    grouped = f"/{groups}" if groups else ""
    name = (f"{dtype} {batch}x{heads}{grouped}x{queries}"
            f"{f'x{keys}' if keys != queries else ''}x{size}"
            f"{' causal' if causal else ''}{' mask' if mask else ''}")
    peers = {label: _sdpa(backend, causal, bool(groups)) for label, backend in BACKENDS.items()}
    goals = [Goal(text, of, least)]
    if bursts:
        goals.append(Goal(f"{text}, in bursts", of, 1.0, "burst"))
    return Case(name, problem, peers, goals=tuple(goals), flops=flops,
                regimes=("sustained", "burst") if bursts else ("sustained",))


def _sdpa(backend: str, causal: bool, grouped: bool) -> Peer:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    chosen = getattr(SDPBackend, backend)

    def call(t: Tensors) -> Any:
        with sdpa_kernel(chosen):
            return scaled_dot_product_attention(t[0], t[1], t[2], attn_mask=t[3],
                                                is_causal=causal, enable_gqa=grouped)

    return call


def formula(shape: Shape, kind: str, *, dtype: str = "bf16", causal: bool = True,
            window: int = 0) -> Case:
    """Return attention with a formula of scores or a window, beside a compiled flex_attention.

    Args:
        shape: of q.
        kind: alibi, softcap or plain.
        dtype, causal: as for attention_problem.
        window: keys seen before a query, its own included; 0 = all.
    """
    batch, heads, queries, size = shape
    score: ExprBundle | None = {"alibi": alibi(dtype), "softcap": softcap(dtype, SOFTCAP),
                                "plain": None}[kind]
    extras: list[TensorSpec] = [slopes("f32", heads)] if kind == "alibi" else []
    problem = attention_problem(dtype, shape, causal=causal, left=window - 1 if window else -1,
                                score=score, extras=extras)
    seen = queries * queries * (0.5 if causal else 1.0)
    if window:
        seen = window * queries - window * (window - 1) / 2
    name = (f"{dtype} {'x'.join(str(n) for n in shape)}{' causal' if causal else ''} {kind}"
            f"{f' window {window}' if window else ''}")
    return Case(name, problem, compiled={"flex": _flex(kind, causal, window)},
                goals=(Goal("score formulas and windows, flex_attention compiled", "flex", 1.3),),
                flops=4.0 * batch * heads * seen * size, regimes=("sustained",))


def _flex(kind: str, causal: bool, window: int) -> Callable[[], Peer]:
    def make() -> Peer:
        import torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        compiled = torch.compile(flex_attention, dynamic=False)
        blocks: dict[int, Any] = {}

        def allowed(b: Any, h: Any, q: Any, k: Any) -> Any:
            inside = q >= k
            return inside & (q - k < window) if window else inside

        def call(t: Tensors) -> Any:
            rows = t[0].shape[2]
            if causal and rows not in blocks:
                blocks[rows] = create_block_mask(allowed, None, None, rows, rows, device="cuda")
            slope = t[7][0, :, 0, 0] if kind == "alibi" else None

            def score(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
                if kind == "alibi":
                    return s + slope[h] * (k - q)
                return SOFTCAP * torch.tanh(s / SOFTCAP)

            return compiled(t[0], t[1], t[2], score_mod=None if kind == "plain" else score,
                            block_mask=blocks.get(rows))

        return call

    return make


def long_heads() -> Iterator[Case]:
    """Heads of 128."""
    text = "hd128 bf16, the four named shapes, cuDNN"
    for batch, length, causal, least in ((4, 4096, False, 1.06), (4, 4096, True, 1.18),
                                         (1, 16384, False, 1.05), (1, 16384, True, 1.18)):
        yield case((batch, 32, length, 128), least, text, of="cudnn", causal=causal, bursts=True)
    other = "hd128, other shapes, best torch backend"
    yield case((2, 16, 2048, 128), 1.0, other, causal=True)
    yield case((8, 16, 512, 128), 1.0, other)
    yield case((4, 32, 4096, 128), 1.0, other, dtype="f16")
    yield case((4, 32, 4096, 128), 1.0, other, groups=8, causal=True)


def short_heads() -> Iterator[Case]:
    """Heads of 64 and 32."""
    text = "hd64 and hd32, best torch backend"
    yield case((16, 16, 1024, 64), 1.05, text)
    yield case((16, 16, 1024, 64), 1.12, text, causal=True)
    yield case((64, 12, 384, 64), 1.2, text)
    yield case((2, 32, 8192, 64), 1.12, text)
    yield case((2, 32, 8192, 64), 1.12, text, causal=True)
    yield case((32, 12, 128, 32), 1.3, text)


def other_heads() -> Iterator[Case]:
    """Other head sizes, lengths that fill no tile, more keys than queries."""
    for size in (80, 96, 192, 256):
        for causal in (False, True):
            yield case((4, 16, 2048, size), 1.0, "hd80 to hd256, best torch backend",
                       causal=causal)
    ragged = "ragged lengths, best torch backend"
    yield case((8, 16, 1000, 128), 1.0, ragged)
    yield case((8, 16, 777, 64), 1.0, ragged, causal=True)
    yield case((4, 32, 300, 128), 1.0, ragged, keys=4096)


def masks() -> Iterator[Case]:
    """An added mask."""
    for shape in ((8, 16, 1024, 64), (4, 16, 2048, 128)):
        yield case(shape, 1.0, "additive mask, best torch backend", mask=True)


def formulas() -> Iterator[Case]:
    """Formulas of scores and windows; the peer needs --compile."""
    for kind in ("alibi", "softcap"):
        yield formula((4, 16, 4096, 128), kind)
        yield formula((8, 16, 2048, 64), kind)
    yield formula((4, 16, 4096, 128), "softcap", causal=False)
    yield formula((2, 16, 8192, 128), "plain", window=1024)
    yield formula((2, 16, 8192, 64), "plain", window=512)


def decode() -> Iterator[Case]:
    """One query."""
    for batch, keys in ((16, 8192), (1, 32768), (64, 2048)):
        yield case((batch, 32, 1, 128), 1.0, "decode, cuDNN", of="cudnn", groups=8, keys=keys)


def gradient(shape: Shape, least: float, text: str, *, dtype: str = "bf16",
             causal: bool = False) -> Case:
    """Return the gradients of attention beside torch's flash backward."""
    batch, heads, queries, size = shape
    flops = 10.0 * batch * heads * queries * queries * size * (0.5 if causal else 1.0)
    name = f"{dtype} {'x'.join(str(n) for n in shape)}{' causal' if causal else ''} gradient"
    return Case(name, gradient_problem(dtype, shape, causal=causal),
                {"flash": _flash_backward(causal)}, goals=(Goal(text, "peers", least),),
                flops=flops, regimes=("sustained",))


def _flash_backward(causal: bool) -> Peer:
    import torch

    aten = torch.ops.aten
    saved: dict[int, Any] = {}

    def call(t: Tensors) -> Any:
        if t[0].data_ptr() not in saved:
            made = aten._scaled_dot_product_flash_attention(t[0], t[1], t[2], 0.0, causal)
            t[3].copy_(made[0])
            t[4].copy_(made[1])
            saved[t[0].data_ptr()] = made[:8]
        out, lse, q_starts, k_starts, queries, keys, seed, offset = saved[t[0].data_ptr()]
        return aten._scaled_dot_product_flash_attention_backward(
            t[5], t[0], t[1], t[2], out, lse, q_starts, k_starts, queries, keys, 0.0, causal,
            seed, offset)[:3]

    return call


def gradients() -> Iterator[Case]:
    """Gradients of q, k and v; the flops are of the five products that they need at least."""
    for causal in (False, True):
        yield gradient((4, 32, 4096, 128), 1.2, "backward hd128 bf16, torch flash backward",
                       causal=causal)
        yield gradient((16, 16, 1024, 64), 1.0, "backward hd64 bf16, torch flash backward",
                       causal=causal)
