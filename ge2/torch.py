"""ge2 kernels as PyTorch operators.

`linear_act(x, weight, bias, act)` is act(x @ weight.T + bias) with gradients, registered with
torch.library so that torch.compile traces through it. It runs on torch's current stream.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from .contract import ActKind
from .ops import _ops_gemm as gemm


def linear_act(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None,
               act: str = "none") -> torch.Tensor:
    """Return act(x @ weight.T + bias).

    Args:
        x: [..., K] on a GPU; f32, f16, bf16 or f64. weight: [N, K]. bias: [N] or None.
        act: an ActKind in lower case ("gelu").

    Raises:
        Ge2Error: shapes, element types or devices do not fit.
    """
    flat = x.reshape(-1, x.shape[-1])
    # NOTE: decided here, since inside the operator autograd's flags are not to be relied on.
    saves = act != "none" and torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (x, weight, bias))
    y, _ = torch.ops.ge2.linear_act(flat, weight, bias, act, saves)
    return y.reshape(*x.shape[:-1], weight.shape[0])  # type: ignore[no-any-return]


@cache
def _attrs(act: str) -> gemm.GemmAttrs:
    return gemm.GemmAttrs(trans_b=True, act=ActKind[act.upper()])


def _stream(tensor: torch.Tensor) -> int:
    return int(torch._C._cuda_getCurrentRawStream(tensor.get_device()))


@torch.library.custom_op("ge2::linear_act", mutates_args=())
def _forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, act: str,
             saves: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (y, z); z is empty where the gradient does not need it."""
    y, z = _outputs(x, weight, saves)
    gemm.forward(x, weight, bias, y, _attrs(act), _stream(x), Z_out=z if saves else None)
    return y, z


def _outputs(x: torch.Tensor, weight: torch.Tensor,
             saves: bool) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.new_empty((x.shape[0], weight.shape[0]))
    return y, torch.empty_like(y) if saves else y.new_empty((0,))


@_forward.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, act: str,
      saves: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return _outputs(x, weight, saves)


@torch.library.custom_op("ge2::linear_act_backward", mutates_args=())
def _backward(g_y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor,
              bias: torch.Tensor | None, z: torch.Tensor | None, act: str,
              wants: list[bool]) -> list[torch.Tensor]:
    """Return the gradients of x, weight and bias; an empty tensor for one that is not wanted."""
    likes = (x, weight, bias)
    made = [torch.empty_like(like) if want and like is not None else g_y.new_empty((0,))
            for like, want in zip(likes, wants, strict=True)]
    grads = [g if want and like is not None else None
             for g, like, want in zip(made, likes, wants, strict=True)]
    gemm.backward(x, weight, None, g_y.contiguous(), z, grads[0], grads[1], None, grads[2],
                  _attrs(act), _stream(g_y), Bias=bias)
    return made


@_backward.register_fake
def _(g_y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None,
      z: torch.Tensor | None, act: str, wants: list[bool]) -> list[torch.Tensor]:
    return [torch.empty_like(like) if want and like is not None else g_y.new_empty((0,))
            for like, want in zip((x, weight, bias), wants, strict=True)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, weight, bias, ctx.act, ctx.saves = inputs
    ctx.save_for_backward(x, weight, bias, output[1])


def _gradient(ctx: Any, g_y: torch.Tensor, _g_z: torch.Tensor | None) -> tuple[Any, ...]:
    x, weight, bias, z = ctx.saved_tensors
    wants = [*ctx.needs_input_grad[:2], bias is not None and ctx.needs_input_grad[2]]
    saved = z if ctx.saves else None
    made = torch.ops.ge2.linear_act_backward(g_y, x, weight, bias, saved, ctx.act, wants)
    return (*(g if want else None for g, want in zip(made, wants, strict=True)), None, None)


_forward.register_autograd(_gradient, setup_context=_setup)
