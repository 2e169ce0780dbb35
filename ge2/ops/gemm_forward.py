"""Forward calls: Y = act(alpha * op(A) op(B) + beta * C + bias) on GPU buffers."""

from __future__ import annotations

from typing import Any

from ..compiler.ir import expr as ex
from ..compiler.ir.expr import ExprBundle
from ..compiler.ir.nodes import Node
from ..compiler.opdefs.activations import ACTIVATIONS
from ..contract import ActKind
from ..errors import MissingInput
from . import gemm_check as check
from .gemm_call import Call, cached, device_for, raw_stream, spec_of
from .gemm_types import GemmAttrs, Tensor, as_tensor
from .prepared import Prepared

ARGUMENTS = ("A", "B", "Bias", "C", "Y", "Z_out")
_INPUTS, _OUTPUTS = ("A", "B", "Bias", "C"), ("Y", "Z_out")


def forward(A: Any, B: Any, Bias: Any, Y: Any, attrs: GemmAttrs, stream: Any = None, *,
            C: Any = None, Z_out: Any = None) -> None:
    """Compute Y on a stream; returns at once.

    Args:
        A: [M, K] ([K, M] with trans_a). B: [K, N] ([N, K] with trans_b). All operands are
            Tensors, CuPy arrays or torch tensors of one element type on one GPU.
        Bias: None, a scalar, [1, N] or (N,), [M, 1], or [M, N].
        Y: [M, N], written; must not overlap an input.
        stream: None for the default stream, a raw handle, or a CuPy or torch stream.
        C: [M, N], scaled by beta and added.
        Z_out: [M, N], takes the value before the activation.

    Raises:
        DeviceMismatch, DtypeMismatch, LayoutMismatch, StrideMismatch, ShapeMismatch,
        MissingInput, Invalid: naming argument, found and wanted.
    """
    a = A if type(A) is Tensor else as_tensor(A)
    b = B if type(B) is Tensor else as_tensor(B)
    y = Y if type(Y) is Tensor else as_tensor(Y)
    bias = Bias if Bias is None or type(Bias) is Tensor else as_tensor(Bias)
    c = C if C is None or type(C) is Tensor else as_tensor(C)
    z = Z_out if Z_out is None or type(Z_out) is Tensor else as_tensor(Z_out)
    key = (a.key, b.key, bias.key if bias is not None else None, y.key,
           c.key if c is not None else None, z.key if z is not None else None, attrs)
    call = cached(key, lambda: make_forward(a, b, bias, y, c, z, attrs))
    addresses = (a.ptr, b.ptr, bias.ptr if bias is not None else 0, c.ptr if c is not None else 0,
                 y.ptr, z.ptr if z is not None else 0)
    tensors = None if addresses in call.checked else dict(
        zip(ARGUMENTS, (a, b, bias, c, y, z), strict=True))
    call.run(addresses, tensors, 0 if stream is None else raw_stream(stream))


def make_forward(a: Tensor, b: Tensor, bias: Tensor | None, y: Tensor, c: Tensor | None,
          z: Tensor | None, attrs: GemmAttrs) -> Call:
    m, n, _ = check.dims(a, b, attrs)
    index = check.same_kind(dict(zip(ARGUMENTS, (a, b, bias, c, y, z), strict=True)))
    for name, tensor in (("Y", y), ("C", c), ("Z_out", z)):
        if tensor is not None:
            check.matrix(name, tensor, (m, n))
    if attrs.save_z and z is None:
        raise MissingInput("save_z needs Z_out, a buffer for Z", argument="Z_out", found=None,
                           wanted=f"[{m}, {n}]")
    specs = {"A": spec_of(a), "B": spec_of(b), "Y": spec_of(y)}
    if c is not None:
        specs["C"] = spec_of(c)
    if bias is not None:
        specs["Bias"] = bias_spec(bias, m, n)
    if z is not None:
        specs["Z_out"] = spec_of(z)
    nodes = [product("Y" if z is None else "Z_out", bias is not None, c is not None, attrs,
                     attrs.act if z is None else ActKind.NONE)]
    if z is not None:
        nodes.append(activation("Z_out", "Y", attrs))
    return Call(Prepared(device_for(index), specs, ARGUMENTS, nodes), _INPUTS, _OUTPUTS)


def bias_spec(bias: Tensor, m: int, n: int) -> Any:
    """Return the bias as a matrix that broadcasts to [M, N]."""
    kind = check.bias_kind(bias, m, n)
    shape = {"scalar": (1, 1), "per_n": (1, n), "per_m": (m, 1), "full": (m, n)}[kind]
    return spec_of(bias, shape)


def product(target: str, has_bias: bool, has_c: bool, attrs: GemmAttrs, act: ActKind) -> Node:
    """Return the node target = act(alpha * op(A) op(B) + beta * C + Bias)."""
    inputs = ("A", "B", "Bias" if has_bias else "", "C" if has_c else "")
    return Node("GEMM_BIAS_ACT", "gemm", inputs, (target,), {
        "trans_a": attrs.trans_a, "trans_b": attrs.trans_b, "alpha": attrs.alpha,
        "beta": attrs.beta, "act": act.name.lower(), "leaky_slope": attrs.slope})


def activation(source: str, target: str, attrs: GemmAttrs) -> Node:
    """Return the node target = act(source)."""
    bundle = ExprBundle((ACTIVATIONS[attrs.act](ex.input(0), attrs.slope),))
    return Node("FUSED_ELEMENTWISE", "activation", (source,), (target,), {"expr": bundle})
