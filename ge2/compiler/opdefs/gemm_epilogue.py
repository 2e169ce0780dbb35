"""The epilogue of GEMM_BIAS_ACT as an expression, whether given or made of alpha, beta and act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...contract import DTYPES, ActKind
from ..ir.expr import Expr, ExprBundle, cast, input, scalar
from .activations import ACTIVATIONS

EPILOGUE_SCALARS = ("alpha", "beta")
"""The attributes that an epilogue reads as run-time scalars 0 and 1."""


def epilogue_of(dtype: str, operands: Sequence[str | None], attrs: Mapping[str, Any]) -> ExprBundle:
    """Return the epilogue over inputs 0 = sum of products, 1 = bias, 2 = C, 3.. = extras.

    Args:
        dtype: element type of the product.
        operands: element types of bias and C; None or missing where absent.
        attrs: all attributes of the node.
    """
    given = attrs["epilogue"]
    if given is not None:
        assert isinstance(given, ExprBundle)
        return given
    bias, c = (*operands, None, None)[:2]
    return gemm_epilogue(dtype, (bias, c), attrs["alpha"], attrs["beta"], attrs["act"],
                         attrs["leaky_slope"])


def gemm_epilogue(dtype: str, dtypes: tuple[str | None, str | None], alpha: float, beta: float,
                  act: str, slope: float) -> ExprBundle:
    """Return act(alpha * acc + beta * C + bias) over inputs acc, bias, C.

    Factors other than 1 are run-time scalars, so that another value needs no other kernel.

    Args:
        dtype: of the output.
        dtypes: of bias and C; None for an absent one.
        alpha, beta, act, slope: attributes of GEMM_BIAS_ACT.
    """
    return _gemm_epilogue(dtype, dtypes, alpha != 1.0, beta != 1.0, act, slope, False)


def epilogue_with_z(dtype: str, dtypes: tuple[str | None, str | None], alpha: float, beta: float,
                    act: str, slope: float) -> ExprBundle:
    """Return the same with a second output: the value before the activation."""
    return _gemm_epilogue(dtype, dtypes, alpha != 1.0, beta != 1.0, act, slope, True)


@lru_cache(maxsize=4096)
def _gemm_epilogue(dtype: str, dtypes: tuple[str | None, str | None], has_alpha: bool,
                   has_beta: bool, act: str, slope: float, with_z: bool) -> ExprBundle:
    z = _before_activation(dtype, dtypes, has_alpha, has_beta)
    y = ACTIVATIONS[ActKind[act.upper()]](z, slope)
    return ExprBundle((y, z) if with_z else (y,))


def _before_activation(dtype: str, dtypes: tuple[str | None, str | None], has_alpha: bool,
                       has_beta: bool) -> Expr:
    compute = DTYPES[dtype].compute
    result = input(0, compute)
    if has_alpha:
        result = result * scalar(0, compute)
    for index in (2, 1):
        given = dtypes[index - 1]
        if given is not None:
            term = cast(input(index, DTYPES[given].compute), compute)
            result = result + (term * scalar(1, compute) if index == 2 and has_beta else term)
    return result
