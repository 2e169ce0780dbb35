"""The problems of each family: small ones to verify on, and the sweep that evidence is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..compiler.ir.row_ops import build_row_op
from ..launch.check_lab import WINDOW_TILE
from ..launch.lab_compose import compose_product_problem, compose_rows_problem
from ..launch.lab_primitives import (
    fuse_problem,
    reduce_problem,
    remat_problem,
    stage_problem,
    stream_problem,
)
from ..problem import Problem
from . import declared
from .chains import CHAINS

# One row operator for each kind of state: a number, a position, moments, maximum and sum.
STATES = ("sum", "max", "argmax", "variance", "logsumexp")
SWEPT_STATES = ("sum", "argmax", "variance", "logsumexp")


@dataclass(frozen=True, slots=True)
class Shapes:
    """The extents of a sweep.

    Attributes:
        rows: (rows, length) of reductions and streams. tall: of operators with a value per element.
        windows: outputs. products: (rows, columns, depth). heads: (batch, heads, tokens, size).
    """

    rows: tuple[tuple[int, int], ...]
    tall: tuple[tuple[int, int], ...]
    windows: tuple[int, ...]
    products: tuple[tuple[int, int, int], ...]
    heads: tuple[tuple[int, int, int, int], ...]


_SWEPT = Shapes(
    ((65536, 64), (16384, 1024), (4096, 4096), (1024, 16384), (64, 262144), (1, 1 << 24)),
    ((65536, 64), (16384, 256), (16384, 1024), (4096, 4096), (1024, 16384), (256, 32768)),
    (1 << 18, 1 << 21, 1 << 24),
    ((512, 1024, 1024), (2048, 1024, 1024), (8192, 1024, 1024)),
    ((16, 16, 128, 64), (8, 16, 256, 64), (4, 16, 512, 64), (2, 16, 1024, 64)))
# Sizes between: what a model that was fitted on the sweep is judged on.
_BETWEEN = Shapes(
    ((32768, 256), (8192, 2048), (2048, 8192), (256, 65536), (8, 2097152)),
    ((32768, 128), (16384, 512), (8192, 2048), (2048, 8192), (512, 24576)),
    (1 << 19, 1 << 20, 1 << 22), ((1024, 1024, 1024), (4096, 1024, 1024)),
    ((16, 16, 192, 64), (4, 16, 384, 64), (2, 16, 768, 64)))


def _verify_reduce() -> list[Problem]:
    return [reduce_problem(op, rows, n) for op in STATES
            for rows, n in ((1, 1), (5, 31), (3, 777), (2, 9001))]


def _verify_remat() -> list[Problem]:
    return [*(remat_problem(rows, n) for rows, n in ((1, 17), (3, 257), (2, 1500))),
            *(CHAINS[name].problem(3, 300) for name in ("softmax_backward", "layer_norm_backward")),
            CHAINS["gemm_backward"].problem(40, 72, 36)]


def _verify_boundary() -> list[Problem]:
    return [*(fuse_problem(rows, n) for rows, n in ((1, 1), (3, 257), (2, 1500))),
            CHAINS["gemm_chain"].problem(66, 72, 36),
            CHAINS["gemm_chain"].problem(130, 72, 40, dtype="f16"),
            CHAINS["norm_gemm"].problem(40, 72, 64),
            CHAINS["attention"].problem(1, 2, 40, 64, dtype="f16")]


def _verify_composition() -> list[Problem]:
    return [compose_rows_problem(declared.weighted_moments(), 3, 2052),
            compose_rows_problem(build_row_op("softmax"), 2, 20),
            compose_product_problem(declared.product_logsumexp(), 66, 72, 20)]


def _remat(shapes: Shapes) -> list[Problem]:
    rows = [CHAINS[name].problem(*shape) for name in ("softmax_backward", "layer_norm_backward")
            for shape in shapes.tall]
    products = [CHAINS["gemm_backward"].problem(*shape, dtype="f16") for shape in shapes.products]
    return [*(remat_problem(*shape) for shape in shapes.tall), *rows, *products]


def _boundary(shapes: Shapes) -> list[Problem]:
    products = [CHAINS[name].problem(*shape, dtype=dtype) for name, dtype in (
        ("gemm_chain", "f32"), ("gemm_chain", "f16"), ("norm_gemm", "f16"))
        for shape in shapes.products]
    heads = [CHAINS["attention"].problem(*shape, dtype="f16") for shape in shapes.heads]
    return [*(fuse_problem(*shape) for shape in shapes.tall), *products, *heads]


def _composition(shapes: Shapes) -> list[Problem]:
    rows = [compose_rows_problem(op, *shape) for op in (
        declared.weighted_moments(), declared.normalized_distance()) for shape in shapes.tall]
    return rows + [compose_product_problem(declared.product_logsumexp(), *shape)
                   for shape in shapes.products]


_FAMILIES: dict[str, Callable[[Shapes], list[Problem]]] = {
    "reduction": lambda shapes: [reduce_problem(op, *shape) for op in SWEPT_STATES
                                 for shape in shapes.rows],
    "streaming": lambda shapes: [stream_problem(*shape) for shape in shapes.rows],
    "staging": lambda shapes: [stage_problem(n, taps) for n in shapes.windows
                               for taps in (1, 9, 33, 65)],
    "rematerialization": _remat,
    "boundary": _boundary,
    "composition": _composition,
}


# Tiny, ragged, and longer than a thread's share.
VERIFY: dict[str, Callable[[], list[Problem]]] = {
    "reduction": _verify_reduce,
    "streaming": lambda: [stream_problem(rows, n) for rows, n in ((1, 1), (3, 255), (2, 5003))],
    "staging": lambda: [stage_problem(tiles * WINDOW_TILE, taps)
                        for tiles, taps in ((1, 1), (3, 5), (11, 65))],
    "rematerialization": _verify_remat,
    "boundary": _verify_boundary,
    "composition": _verify_composition,
}

SWEEP = {family: partial(make, _SWEPT) for family, make in _FAMILIES.items()}
BETWEEN = {family: partial(make, _BETWEEN) for family, make in _FAMILIES.items()}


def condition(problem: Problem) -> str:
    """Return what varies within a family besides the size: the state, the taps, the chain."""
    x, *more = problem.inputs
    assert x is not None
    row = str(getattr(problem.attr_map.get("row"), "name", ""))
    if problem.op_type == "LAB_STAGE":
        taps = more[0].size if more[0] else 0
        return f"{taps} tap" if taps == 1 else f"{taps} taps"
    if problem.op_type == "LAB_GRAPH":
        return f"{problem.attr_map['chain']} {x.dtype}"
    return {"LAB_COMPOSE_ROWS": f"rows {row}", "LAB_COMPOSE_PRODUCT": f"product {row}",
            "LAB_STREAM": "weighted mean", "LAB_REMAT": "gelu of a norm",
            "LAB_FUSE": "norm between formulas"}.get(problem.op_type, row)


def extent(problem: Problem) -> int:
    """Return the size along the sweep; see extent_name()."""
    x = problem.inputs[0]
    assert x is not None
    if problem.op_type == "LAB_STAGE":
        return problem.outputs[0].size
    return x.shape[{"rows": 0, "tokens": -2}.get(extent_name(problem), -1)]


def extent_name(problem: Problem) -> str:
    """Return what is swept: the length of rows, their number, outputs of a window, tokens."""
    chain = problem.attr_map.get("chain", "")
    if problem.op_type == "LAB_STAGE":
        return "outputs"
    if chain == "attention":
        return "tokens"
    if problem.op_type == "LAB_COMPOSE_PRODUCT" or "gemm" in str(chain):
        return "rows"
    return "row length"


def label(problem: Problem) -> str:
    """Return the shape for a person."""
    x = problem.inputs[0]
    assert x is not None
    shape = " x ".join(map(str, x.shape)) if len(x.shape) > 1 else str(problem.outputs[0].size)
    if extent_name(problem) == "rows" and problem.op_type == "LAB_GRAPH":
        dims = problem.attr_map["dims"]
        assert isinstance(dims, tuple)
        shape = " x ".join(map(str, dims))
    return " ".join(filter(None, (condition(problem), shape)))
