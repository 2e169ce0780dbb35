"""Forward calls: Y = act(alpha * op(A) op(B) + beta * C + bias) on GPU buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..compiler.ir import expr as ex
from ..compiler.ir.expr import ExprBundle
from ..compiler.ir.nodes import Node
from ..compiler.opdefs.activations import ACTIVATIONS
from ..compiler.opdefs.gemm_epilogue import epilogue_with_z
from ..contract import DTYPES, ActKind
from ..errors import MissingInput, NoKernelError
from ..problem import TensorSpec
from . import gemm_check as check
from .gemm_call import CALLS, Call, device_for, named, remember, spec_of
from .gemm_types import GemmAttrs, Tensor
from .operands import ABSENT, operand
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
    a = (A.key, A.ptr) if type(A) is Tensor else operand(A)
    b = (B.key, B.ptr) if type(B) is Tensor else operand(B)
    y = (Y.key, Y.ptr) if type(Y) is Tensor else operand(Y)
    bias = ABSENT if Bias is None else operand(Bias)
    c = ABSENT if C is None else operand(C)
    z = ABSENT if Z_out is None else operand(Z_out)
    key = (a[0], b[0], bias[0], c[0], y[0], z[0], attrs.key)
    operands = (A, B, Bias, C, Y, Z_out)
    call = CALLS.by_key.get(key)
    if call is None:
        call = remember(key, make_forward(named(ARGUMENTS, operands), attrs))
    call.run([a[1], b[1], bias[1], c[1], y[1], z[1]], operands, stream)


def make_forward(t: dict[str, Tensor | None], attrs: GemmAttrs) -> Call:
    """Return the prepared forward call of tensors by argument name.

    Raises:
        As forward.
    """
    a, b, _ = (check.required(t, name) for name in ("A", "B", "Y"))
    bias, c, z = t["Bias"], t["C"], t["Z_out"]
    m, n, _ = check.dims(a, b, attrs)
    index = check.same_kind(t)
    for name in ("Y", "C", "Z_out"):
        tensor = t[name]
        if tensor is not None:
            check.matrix(name, tensor, (m, n))
    if attrs.save_z and z is None:
        raise MissingInput("save_z needs Z_out, a buffer for Z", argument="Z_out", found=None,
                           wanted=f"[{m}, {n}]")
    specs = {name: spec_of(x) for name, x in t.items() if x is not None and name != "Bias"}
    if bias is not None:
        specs["Bias"] = bias_spec(bias, m, n)
    given = (bias is not None, c is not None)
    if z is None:
        nodes = [product("Y", *given, attrs, attrs.act)]
        return Call(Prepared(device_for(index), specs, ARGUMENTS, nodes), _INPUTS, _OUTPUTS)
    try:
        prepared = Prepared(device_for(index), specs, ARGUMENTS,
                            [product_with_z(specs, *given, attrs)])
    except NoKernelError:  # not every kernel can write two outputs
        nodes = [product("Z_out", *given, attrs, ActKind.NONE),
                 activation("Z_out", "Y", specs["Y"].dtype, attrs)]
        prepared = Prepared(device_for(index), specs, ARGUMENTS, nodes)
    return Call(prepared, _INPUTS, _OUTPUTS)


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
        "beta": attrs.beta, "act": act.name.lower(), "leaky_slope": attrs.slope, "f32": attrs.f32})


def product_with_z(specs: Mapping[str, TensorSpec], has_bias: bool, has_c: bool,
                   attrs: GemmAttrs) -> Node:
    """Return the node that writes Y and, as its second output, Z_out."""
    node = product("Y", has_bias, has_c, attrs, attrs.act)
    dtypes = (specs["Bias"].dtype if has_bias else None, specs["C"].dtype if has_c else None)
    epilogue = epilogue_with_z(specs["Y"].dtype, dtypes, attrs.alpha, attrs.beta,
                               attrs.act.name.lower(), attrs.slope)
    return Node(node.op, node.name, node.inputs, ("Y", "Z_out"),
                {**node.attrs, "epilogue": epilogue})


def activation(source: str, target: str, dtype: str, attrs: GemmAttrs) -> Node:
    """Return the node target = act(source), computed in the compute type of dtype."""
    z = ex.input(0, DTYPES[dtype].compute)
    bundle = ExprBundle((ACTIVATIONS[attrs.act](z, attrs.slope),))
    return Node("FUSED_ELEMENTWISE", "activation", (source,), (target,), {"expr": bundle})
