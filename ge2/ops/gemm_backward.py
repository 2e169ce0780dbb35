"""Backward calls: gradients of Y = act(Z), Z = alpha * op(A) op(B) + beta * C + bias.

With dZ = gY * act'(Z), computed once: gA = alpha dZ op(B)', gB = alpha op(A)' dZ, gC = beta dZ and
gBias = dZ summed over the axes that the bias was broadcast along. act' is the derivative of the
activation's own expression. Only what is asked for is computed.
"""

from __future__ import annotations

from typing import Any

from ..compiler.ir import expr as ex
from ..compiler.ir.expr import ExprBundle
from ..compiler.ir.nodes import Node
from ..compiler.opdefs.activations import ACTIVATIONS
from ..contract import DTYPE_NAMES, DTYPES, ActKind
from ..problem import TensorSpec
from . import gemm_check as check
from .gemm_call import CALLS, Call, device_for, named, remember, spec_of
from .gemm_forward import bias_spec, product
from .gemm_types import GemmAttrs, Tensor
from .operands import operand
from .prepared import Prepared

_INPUTS = ("A", "B", "C", "gY", "Z", "Bias")
_OUTPUTS = ("gA", "gB", "gC", "gBias")
_ARGUMENTS = (*_INPUTS, *_OUTPUTS)
_Tensors = dict[str, Tensor | None]


def backward(A: Any, B: Any, C: Any, gY: Any, Z: Any, gA: Any, gB: Any, gC: Any, gBias: Any,
             attrs: GemmAttrs, stream: Any = None, *, Bias: Any = None) -> None:
    """Compute the gradients whose buffers are given; returns at once.

    Args:
        A, B, C: as in the forward call; C may be None where there was none.
        gY: [M, N], gradient of Y.
        Z: [M, N], value before the activation. None: not needed without an activation, else
            recomputed from A, B, C and Bias.
        gA, gB, gC: like A, B, C; gBias: like Bias; None for what is not wanted.
        stream: as in forward.
        Bias: the forward call's bias, needed only to recompute Z.

    Raises:
        MissingInput: gC without C, or Z and what it would be recomputed from are missing.
        Others as forward.
    """
    operands = (A, B, C, gY, Z, Bias, gA, gB, gC, gBias)
    pairs = [operand(x) for x in operands]
    key = ("backward", *[pair[0] for pair in pairs], attrs.key)
    call = CALLS.by_key.get(key)
    if call is None:
        call = remember(key, _make(named(_ARGUMENTS, operands), attrs))
    call.run([pair[1] for pair in pairs], operands, stream)


def _make(t: _Tensors, attrs: GemmAttrs) -> Call:
    a, b, _ = (check.required(t, name) for name in ("A", "B", "gY"))
    m, n, _ = check.dims(a, b, attrs)
    index = check.same_kind(t)
    check.gradients(t, attrs)
    _check_shapes(t, m, n)
    plan = _Plan(t, attrs, m, n)
    plan.build()
    prepared = Prepared(device_for(index), plan.specs, _ARGUMENTS, plan.nodes, plan.temporaries)
    return Call(prepared, _INPUTS, _OUTPUTS)


def _check_shapes(t: _Tensors, m: int, n: int) -> None:
    wanted = {"gY": (m, n), "Z": (m, n), "C": (m, n), "gC": (m, n)}
    for name, like in (("gA", t["A"]), ("gB", t["B"]), ("gBias", t["Bias"])):
        if like is not None:
            wanted[name] = like.desc.shape  # type: ignore[assignment]
    for name, shape in wanted.items():
        tensor = t[name]
        if tensor is not None:
            check.matrix(name, tensor, shape)


class _Plan:
    """The stages of one backward call."""

    def __init__(self, tensors: _Tensors, attrs: GemmAttrs, m: int, n: int) -> None:
        self.tensors = tensors
        self.attrs = attrs
        self.shape = (m, n)
        self.compute = DTYPES[DTYPE_NAMES[check.required(tensors, "gY").desc.dtype]].compute
        self.nodes: list[Node] = []
        self.temporaries: list[str] = []
        self.specs: dict[str, TensorSpec] = {
            name: spec_of(x) for name, x in tensors.items()
            if x is not None and name not in ("Bias", "gBias")}
        for name in ("Bias", "gBias"):
            bias = tensors[name]
            if bias is not None:
                self.specs[name] = bias_spec(bias, m, n)

    def build(self) -> None:
        """Append the stages that the wanted gradients need."""
        wants_product = self.tensors["gA"] is not None or self.tensors["gB"] is not None
        wants_bias = self.tensors["gBias"] is not None
        d_z = self._d_z(wants_product or wants_bias)
        if self.tensors["gA"] is not None:
            self._product("gA", "B", d_z)
        if self.tensors["gB"] is not None:
            self._product("gB", "A", d_z)
        if wants_bias:
            self._bias(d_z)

    def _input(self, index: int) -> ex.Expr:
        return ex.input(index, self.compute)

    def _temporary(self, name: str) -> str:
        self.temporaries.append(name)
        self.specs[name] = TensorSpec.dense(self.specs["gY"].dtype, self.shape)
        return name

    def _d_z(self, needed: bool) -> str:
        """Append what makes dZ (and gC, which is a multiple of it); return its name."""
        attrs, wants_c = self.attrs, self.tensors["gC"] is not None
        if attrs.act is ActKind.NONE:
            if wants_c:
                self._elementwise(("gY",), ("gC",), self._input(0) * attrs.beta)
            return "gY"
        if not (needed or wants_c):
            return "gY"
        z = self._input(1)
        slope = ex.differentiate(ACTIVATIONS[attrs.act](z, attrs.slope), 1)
        d_z = self._input(0) * slope
        source = self._z()
        results, targets = [d_z], [self._temporary("dZ")] if needed else []
        if wants_c:
            targets.append("gC")
            results = ([d_z] if needed else []) + [d_z * attrs.beta]
        self._elementwise(("gY", source), tuple(targets), *results)
        return "dZ"

    def _z(self) -> str:
        if self.tensors["Z"] is not None:
            return "Z"
        node = product(self._temporary("Z'"), self.tensors["Bias"] is not None,
                       self.tensors["C"] is not None, self.attrs, ActKind.NONE)
        self.nodes.append(node)
        return "Z'"

    def _elementwise(self, sources: tuple[str, ...], targets: tuple[str, ...],
                     *results: ex.Expr) -> None:
        self.nodes.append(Node("FUSED_ELEMENTWISE", "dZ", sources, targets,
                               {"expr": ExprBundle(results)}))

    def _product(self, target: str, other: str, d_z: str) -> None:
        """gA or gB as one GEMM whose output is dense in the layout that the operand has."""
        attrs = self.attrs
        if target == "gA":
            first, second = (other, d_z) if attrs.trans_a else (d_z, other)
            flags = (attrs.trans_b, True) if attrs.trans_a else (False, not attrs.trans_b)
        else:
            first, second = (d_z, other) if attrs.trans_b else (other, d_z)
            flags = (True, attrs.trans_a) if attrs.trans_b else (not attrs.trans_a, False)
        self.nodes.append(Node("GEMM_BIAS_ACT", target, (first, second), (target,), {
            "trans_a": flags[0], "trans_b": flags[1], "alpha": attrs.alpha,
            "f32": attrs.f32}))

    def _bias(self, d_z: str) -> None:
        m, n = self.shape
        rows, columns = self.specs["gBias"].shape
        axes = tuple(axis for axis, (have, full) in enumerate(((rows, m), (columns, n)))
                     if have != full)
        if axes:
            self.nodes.append(Node("REDUCE_SUM", "gBias", (d_z,), ("gBias",),
                                   {"axes": axes, "keepdims": True}))
        else:
            self._elementwise((d_z,), ("gBias",), self._input(0))
