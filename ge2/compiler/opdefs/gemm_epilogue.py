"""The epilogue of GEMM_BIAS_ACT as an expression, whether given or made of alpha, beta and act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...contract import DTYPES, ActKind
from ..ir.expr import Expr, ExprBundle, cast, input
from .activations import ACTIVATIONS


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


@lru_cache(maxsize=4096)
def gemm_epilogue(dtype: str, dtypes: tuple[str | None, str | None], alpha: float, beta: float,
                  act: str, slope: float) -> ExprBundle:
    """Return act(alpha * acc + beta * C + bias) over inputs acc, bias, C.

    Args:
        dtype: of the output.
        dtypes: of bias and C; None for an absent one.
        alpha, beta, act, slope: attributes of GEMM_BIAS_ACT.
    """
    z = _before_activation(dtype, dtypes, alpha, beta)
    return ExprBundle((ACTIVATIONS[ActKind[act.upper()]](z, slope),))


def epilogue_with_z(dtype: str, dtypes: tuple[str | None, str | None], alpha: float, beta: float,
                    act: str, slope: float) -> ExprBundle:
    """Return the same with a second output: the value before the activation."""
    z = _before_activation(dtype, dtypes, alpha, beta)
    return ExprBundle((ACTIVATIONS[ActKind[act.upper()]](z, slope), z))


def _before_activation(dtype: str, dtypes: tuple[str | None, str | None], alpha: float,
                       beta: float) -> Expr:
    compute = DTYPES[dtype].compute
    result = input(0, compute)
    if alpha != 1.0:
        result = result * alpha
    for index, factor in ((2, beta), (1, 1.0)):
        given = dtypes[index - 1]
        if given is not None:
            term = cast(input(index, DTYPES[given].compute), compute)
            result = result + (term if factor == 1.0 else term * factor)
    return result
