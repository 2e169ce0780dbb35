"""Activations: one table shared by elementwise operators and the epilogues of GEMM and CONV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from ...contract import ActKind
from ..ir import expr as ex
from ..ir.expr import Expr, ExprBundle
from .formula import evaluate
from .opdef import Array

_INV_SQRT_2 = 0.7071067811865476
_SQRT_2_OVER_PI = 0.7978845608028654


def relu(x: Expr) -> Expr:
    """Return max(x, 0); NaN stays NaN."""
    return ex.maximum(x, 0)


def gelu(x: Expr) -> Expr:
    """Return x * Phi(x), in the form with the fewest fused operations."""
    half = x * 0.5
    return half * ex.erf(x * _INV_SQRT_2) + half


def gelu_tanh(x: Expr) -> Expr:
    """Return the tanh approximation of gelu, in the form with the fewest fused operations."""
    half = x * 0.5
    inner = x * (x * x * (0.044715 * _SQRT_2_OVER_PI) + _SQRT_2_OVER_PI)
    return half * ex.tanh(inner) + half


def leaky_relu(x: Expr, slope: float) -> Expr:
    """Return x where x >= 0, else slope * x."""
    return ex.where(x < 0, x * slope, x)


def hard_sigmoid(x: Expr, alpha: float = 1 / 6, beta: float = 0.5) -> Expr:
    """Return alpha * x + beta limited to [0, 1]."""
    return ex.clip(x * alpha + beta, 0.0, 1.0)


def elu(x: Expr, alpha: float = 1.0) -> Expr:
    """Return x where x > 0, else alpha * (exp(x) - 1)."""
    tail = ex.expm1(x)
    return ex.where(x > 0, x, tail if alpha == 1.0 else tail * alpha)


def mish(x: Expr) -> Expr:
    """Return x * tanh(softplus(x))."""
    return x * ex.tanh(ex.softplus(x))


ACTIVATIONS: dict[ActKind, Callable[[Expr, float], Expr]] = {
    ActKind.NONE: lambda x, slope: x,
    ActKind.RELU: lambda x, slope: relu(x),
    ActKind.GELU: lambda x, slope: gelu(x),
    ActKind.GELU_TANH: lambda x, slope: gelu_tanh(x),
    ActKind.SILU: lambda x, slope: x * ex.sigmoid(x),
    ActKind.SIGMOID: lambda x, slope: ex.sigmoid(x),
    ActKind.TANH: lambda x, slope: ex.tanh(x),
    ActKind.LEAKY_RELU: leaky_relu,
    ActKind.HARD_SWISH: lambda x, slope: x * hard_sigmoid(x),
    ActKind.HARD_SIGMOID: lambda x, slope: hard_sigmoid(x),
    ActKind.ELU: lambda x, slope: elu(x),
    ActKind.SOFTPLUS: lambda x, slope: ex.softplus(x),
    ActKind.MISH: lambda x, slope: mish(x),
    ActKind.RELU6: lambda x, slope: ex.clip(x, 0.0, 6.0),
}


@lru_cache(maxsize=256)
def _bundle(act: str, slope: float, dtype: str) -> ExprBundle:
    return ExprBundle((ACTIVATIONS[ActKind[act.upper()]](ex.input(0, dtype), slope),))


def apply(act: str, x: Array, leaky_slope: float = 0.01) -> Array:
    """Return the activation of an f32 or f64 array; act is a lower-case ActKind name."""
    if act == "none":
        return x
    if act == "relu":
        return np.asarray(np.maximum(x, x.dtype.type(0)))
    dtype = "f64" if x.dtype == np.float64 else "f32"
    return evaluate(_bundle(act, leaky_slope, dtype).outputs, [x])[0]


def evaluate_bundle(bundle: ExprBundle, inputs: Sequence[Array | None],
                    scalars: Sequence[float] = ()) -> list[Array]:
    """Evaluate an f32 bundle; in f64 when the inputs are f64 (the reference of a model)."""
    dtypes = ["f64" if a is not None and a.dtype == np.float64 else "" for a in inputs]
    return evaluate(fitted(bundle, dtypes).outputs, inputs, scalars=scalars)


def fitted(bundle: ExprBundle, dtypes: Sequence[str]) -> ExprBundle:
    """Return the bundle, widened to f64 when one of its f32 leaves reads an f64 tensor."""
    pairs = zip(bundle.input_dtypes, dtypes, strict=False)
    return _widened(bundle) if ("f32", "f64") in set(pairs) else bundle


@lru_cache(maxsize=1024)
def _widened(bundle: ExprBundle) -> ExprBundle:
    return ex.widen(bundle)
