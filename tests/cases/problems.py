"""About 200 problems per kernel-level operator: pairwise over sizes, layouts, dtypes, options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from .attention import attention_cases, paged_cases
from .attention_grad import gradient_cases
from .case import FLOATS, Case
from .elementwise import elementwise_cases
from .movement import concat_cases, gather_cases, pad_cases, resample_cases
from .products import gemm_byte_cases, gemm_cases, nbits_cases, norm_gemm_cases
from .rows import lab_cases, row_cases
from .windows import conv_cases, pool_cases


@cache
def cases_for(op_type: str) -> tuple[Case, ...]:
    """Return the cases of a kernel-level operator; () for one that has none here."""
    return tuple(_MAKERS[op_type]()) if op_type in _MAKERS else ()


_MAKERS: dict[str, Callable[[], Iterable[Case]]] = {
    "ELEMENTWISE": elementwise_cases,
    "GEMM_BIAS_ACT": lambda: (*(case for d in FLOATS for case in gemm_cases(d)),
                              *gemm_byte_cases()),
    "NORM_GEMM": norm_gemm_cases,
    "MATMUL_NBITS": nbits_cases,
    "ATTENTION": attention_cases,
    "PAGED_ATTENTION": paged_cases,
    "ATTENTION_GRAD": gradient_cases,
    "ROW": row_cases,
    "CONCAT": concat_cases,
    "GATHER": gather_cases,
    "PAD": pad_cases,
    "RESAMPLE": resample_cases,
    "CONV2D": conv_cases,
    "POOL2D": pool_cases,
    "LAB_NORMALIZE_SUM": lab_cases,
}
